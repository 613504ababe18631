"""The server of a pod, started from the very files that the operator writes for one."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import pytest

from blockhouse_operator.api.resolve import all_replicas, resolve
from blockhouse_operator.desired import clickhouse
from e2e.clickhouse_choice import CURRENT
from e2e.stack.clickhouse import ClickHouseServer
from e2e.stack.ports import Ports
from e2e.stack.server import Server
from e2e.stack.spec import StackSpec
from tests.unit.operator.resources import pipeline

REPLICA = "events-1-dc-a-0"
CLUSTER, ANALYST = "of-the-cluster", "of-the-analyst"
"""Passwords."""


def user(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "passwordSecretRef": {"name": f"of-{name}"}, **more}


USERS = [user("analyst")]


class PodServer(ClickHouseServer):
    """The container `clickhouse` of a pod: our files, with this machine's folder and ports in place of the pod's."""

    environment: ClassVar[dict[str, str]] = {
        **ClickHouseServer.environment,
        clickhouse.REPLICA: REPLICA,
        clickhouse.HOST: "127.0.0.1",
    }
    shards = 2

    def prepare(self) -> list[str]:
        command = super().prepare()
        (self.folder / "config.d").mkdir(exist_ok=True)
        self.configure()
        self.publish(USERS, {"analyst": ANALYST})
        self.list_shards(2)
        return command

    def publish(self, users: list[dict[str, Any]], passwords: dict[str, str]) -> None:
        """Write the users, as the operator does when a spec or a Secret changes."""
        managed = pipeline(("spec.clickhouse.managed.users", users)).spec.clickhouse.managed
        assert managed is not None
        found = clickhouse.users(managed, clickhouse.Passwords({clickhouse.CLUSTER_USER: CLUSTER}, passwords))
        self.write("users.xml", found)

    def list_shards(self, shards: int) -> None:
        """Write `remote_servers` again, as the operator does when shards are added."""
        here = [(f"spec.zones.{zone}.hostTemplate", "127.0.0.1") for zone in (0, 1)]
        desired = all_replicas(pipeline(("spec.shards", shards), *here))
        passwords = clickhouse.Passwords({clickhouse.CLUSTER_USER: CLUSTER})
        self.write("config.d/remote_servers.xml", clickhouse.remote_servers("events", desired, passwords))

    def list_own(self, listed: str) -> None:
        """Let it list what `clickhouse.remoteServers` asks for, as the operator does, in two files."""
        if listed == "Full":
            self.list_shards(2)
        else:
            passwords = clickhouse.Passwords({clickhouse.CLUSTER_USER: CLUSTER})
            self.write("config.d/remote_servers.xml", clickhouse.login(passwords))
        self.configure(("spec.clickhouse.remoteServers", listed))

    def configure(self, *changes: tuple[str, Any]) -> None:
        """Write `config.xml`; replicas are listed under this server's own address."""
        servers = ("spec.zookeeper.ensembles.0.servers", [f"127.0.0.1:{self._zookeeper_port}"])
        here = [(f"spec.zones.{zone}.hostTemplate", "127.0.0.1") for zone in (0, 1)]
        text = clickhouse.server(resolve(pipeline(servers, *here, *changes), 1))
        self.write("config.xml", text.replace("<port>9000<", f"<port>{self.port}<"))

    @property
    def interserver_port(self) -> int:
        return self._interserver_port

    def ports_here(self) -> dict[int, int]:
        """Ports of this machine by those of a pod."""
        return {8123: self.http_port, 9000: self.port, 9009: self._interserver_port}

    def write(self, name: str, text: str) -> None:
        ports = self.ports_here()
        text = re.sub(r"(?<=_port>)\d+|(?<=_port_secure>)\d+", lambda found: str(ports[int(found[0])]), text)
        path = self.folder / name
        before = path.stat().st_mtime if path.exists() else 0.0
        text = text.replace(clickhouse.DATA, str(self.folder)).replace("/etc/clickhouse-server", str(self.folder))
        path.write_text(text)
        # The server compares times in whole seconds; a kubelet writes no file twice in one.
        written = max(path.stat().st_mtime, before + 1)
        os.utime(path, (written, written))


Kind = TypeVar("Kind", bound=PodServer)


def replica_of(kind: type[Kind], folder: Path, ports: Ports, number: int, zookeeper_port: int) -> Kind:
    """`replica-NUMBER` of shard 1, with ports of its own; it is not started."""
    return kind(
        f"replica-{number}",
        folder / f"replica-{number}",
        spec=StackSpec(),
        id=(1, number),
        ports={purpose: ports[f"{purpose}-{number}"] for purpose in ("native", "http", "interserver")},
        cluster={},
        zookeeper_port=zookeeper_port,
        dies_with_parent=True,
    )


def skip_on_the_stand_in(why: str) -> None:
    """`why` is what the stand-in of the current server lacks."""
    if StackSpec().clickhouse == CURRENT:
        pytest.skip(f"the stand-in of the current server {why}: give CLICKHOUSE=/path/to/clickhouse-server")


@contextmanager
def running(ports: Ports, *servers: Server) -> Iterator[None]:
    """Start them one after the other; in the end they are killed in the other order, and their ports are free."""
    try:
        for server in servers:
            server.start()
        yield
    finally:
        for server in reversed(servers):
            server.kill()
        ports.release()
