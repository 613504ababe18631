"""A ClickHouse replica of a stack, of whichever version the stack is of."""

from __future__ import annotations

import logging
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import quote
from xml.sax.saxutils import escape

import psutil
from clickhouse_driver import Client

from blockhouse_operator.desired.scripts import start_after_zookeeper
from e2e.stack.clickhouse_program import Program, program
from e2e.stack.hanging import StartWatch
from e2e.stack.process import wait_until
from e2e.stack.server import START_TIMEOUT, Server, render
from e2e.stack.spec import HOST, StackSpec

log = logging.getLogger(__name__)
CLUSTER = "blockhouse"
"""Name of the cluster in `remote_servers` that holds all shards and replicas of the stack."""

MERGE_TREE = {
    # A resumed or restarted replica stays inactive until this check; the default is a minute.
    "zookeeper_session_expiration_check_period": "2",
}


class ClickHouseServer(Server):
    """Replica `replica` (r1, r2 ...) of shard `shard` (01, 02 ...): user `default`, no password, loopback only."""

    environment: ClassVar[dict[str, str]] = {"CLICKHOUSE_WATCHDOG_ENABLE": "0"}
    """Newer servers fork themselves otherwise: it would be the watchdog that we kill."""

    def __init__(
        self,
        name: str,
        folder: Path,
        *,
        spec: StackSpec,
        id: tuple[int, int],
        ports: Mapping[str, int],
        cluster: Mapping[tuple[int, int], int],
        zookeeper_port: int,
        dies_with_parent: bool,
    ) -> None:
        """`ports` has native, http and interserver; `cluster` the native port of every replica of the stack."""
        super().__init__(name, folder, dies_with_parent=dies_with_parent)
        self.host = HOST
        self.port, self.http_port, self._interserver_port = (
            ports["native"],
            ports["http"],
            ports["interserver"],
        )
        self.shard = f"{id[0]:02d}"
        self.replica = f"r{id[1]}"
        self._spec = spec
        self._cluster = cluster
        self._zookeeper_port = zookeeper_port
        self._watch: StartWatch | None = None

    @property
    def output(self) -> Path:
        return self.folder / "output.log"

    @cached_property
    def version(self) -> str:
        """As the running server reports it, e.g. 18.16.1."""
        return self._get("SELECT version()")

    @property
    def listens(self) -> tuple[int, ...]:
        """Ports that clients and other replicas use."""
        return self.port, self.http_port, self._interserver_port

    def prepare(self) -> list[str]:
        for sub in ("tmp", "user_files", "format_schemas"):
            (self.folder / "data" / sub).mkdir(parents=True, exist_ok=True)
        level = self._spec.clickhouse_log_level
        run = program(self._spec.clickhouse, shard=self.shard, replica=self.replica, log_level=level)
        memory = self._spec.clickhouse_memory
        (self.folder / "users.xml").write_text(render("users.xml", root=run.root, profile=run.profile, memory=memory))
        config = self.folder / "config.xml"
        config.write_text(self._render_config(run))
        start = start_after_zookeeper([f"{self.host}:{self._zookeeper_port}"])
        return ["/bin/sh", "-c", start, *run.command, f"--config-file={config}"]

    def answers(self) -> bool:
        try:
            return self._get(None) == "Ok." and self._get("SELECT 1") == "1"
        except (OSError, urllib.error.URLError):
            return False

    def wait_ready(self, timeout: float = START_TIMEOUT) -> None:
        """As of every server; one that hangs at its start is killed and started again, which is logged."""
        wait_until(lambda: not self.alive or self.answers() or self.start_again_if_hung(), timeout=timeout)
        super().wait_ready(timeout)

    def start_again_if_hung(self) -> bool:
        """Whether it had to be killed because it hangs at its start, as 18.16 may: as a pod's startup probe does."""
        if not self._hangs():
            return False
        log.warning("%s hangs at its start: killed and started again", self.name)
        self.kill()
        self.start(wait=False)
        return True

    def _hangs(self) -> bool:
        """Meant to be asked again and again: only then is it known for how long the server has done nothing."""
        process = self._process
        if process is None or not self.alive or self.frozen:
            self._watch = None
            return False
        if self._watch is None or self._watch.pid != process.pid:
            self._watch = StartWatch(process.pid)
        if self._watch.over or self.answers():
            self._watch.end()
            return False
        try:
            times = process.cpu_times()
            waits = process.name() == "sh"  # for ZooKeeper
        except psutil.Error:  # it has died meanwhile
            return False
        return self._watch.hangs(times.user + times.system, time.monotonic(), waits=waits)

    def execute(
        self, sql: str, params: Sequence[Any] | Mapping[str, Any] | None = None, **settings: Any
    ) -> list[tuple[Any, ...]]:
        """Runs one statement over a new native connection and returns its rows; driver errors pass through."""
        with Client(self.host, self.port, settings=settings) as client:
            rows = client.execute(sql, params)
        return rows if isinstance(rows, list) else []

    def unready_tables(self) -> list[str]:
        """Replicated tables that are read-only now, as after a restart of ZooKeeper; OSError when unreachable."""
        sql = "SELECT concat(database, '.', table) FROM system.replicas WHERE is_readonly OR is_session_expired"
        return self._get(sql).split()

    def _get(self, query: str | None) -> str:
        path = f"?query={quote(query)}" if query else ""
        with urllib.request.urlopen(f"http://{self.host}:{self.http_port}/{path}", timeout=1) as reply:
            return bytes(reply.read()).decode().strip()

    def _render_config(self, run: Program) -> str:
        merge_tree = {**MERGE_TREE, **run.merge_tree, **self._spec.merge_tree}
        return render(
            "config.xml",
            root=run.root,
            server=run.server,
            zookeeper=run.zookeeper,
            name=self.name,
            folder=escape(str(self.folder)),
            host=self.host,
            port=self.port,
            http_port=self.http_port,
            interserver_port=self._interserver_port,
            zookeeper_port=self._zookeeper_port,
            zookeeper_session_ms=self._spec.clickhouse_zk_timeout_ms,
            shard=self.shard,
            replica=self.replica,
            log_level=self._spec.clickhouse_log_level,
            cluster=_render_cluster(self.host, self._cluster),
            merge_tree="\n".join(f"    <{k}>{escape(v)}</{k}>" for k, v in merge_tree.items()),
        )


def _render_cluster(host: str, native_ports: Mapping[tuple[int, int], int]) -> str:
    shards: dict[int, list[str]] = {}
    for (shard, _), port in sorted(native_ports.items()):
        replica = f"<replica><host>{host}</host><port>{port}</port></replica>"
        shards.setdefault(shard, []).append(replica)
    return "\n".join(
        f"      <shard><internal_replication>true</internal_replication>{''.join(replicas)}</shard>"
        for replicas in shards.values()
    )
