"""The stack: ZooKeeper, Kafka clusters and ClickHouse replicas of one spec, in one folder, up and down together."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import asdict, fields
from functools import partial
from pathlib import Path

from e2e.stack.clickhouse import ClickHouseServer
from e2e.stack.kafka import KafkaBroker, KafkaClusterServers, broker_ports
from e2e.stack.ports import Ports
from e2e.stack.process import wait_until
from e2e.stack.server import Server, StackError
from e2e.stack.spec import StackSpec
from e2e.stack.stage import Stage
from e2e.stack.zookeeper import ZooKeeperServer

Progress = Callable[[Server], None]
"""Called with each server that begins to answer, from the thread that started it."""

STATE = "stack.json"

HEAL_TIMEOUT = 90.0
"""Seconds a replica may take to return to ZooKeeper: its old session has to expire first."""


class Stack(Stage):
    """Real servers for one pipeline. As a context manager it leaves no process, and no data unless `keep`.

    In a folder that holds a stack already, its ports and data are used again (StackError when the spec differs).
    `detached` servers outlive this process, e.g. for `blockhouse stack up`; others are killed with it.
    """

    def __init__(
        self,
        folder: Path,
        spec: StackSpec | None = None,
        *,
        keep: bool = False,
        detached: bool = False,
    ) -> None:
        self.folder = folder.absolute()
        recorded = read_state(self.folder)
        if recorded and spec is not None and recorded[0] != spec:
            raise StackError(
                f"{self.folder} holds another stack ({_differences(recorded[0], spec)}): "
                f"`blockhouse stack down --folder {folder}` first, or use another folder"
            )
        self.spec, known_ports = recorded or (spec or StackSpec(), {})
        self.keep = keep
        self._ports = Ports(known_ports)
        self._dies_with_parent = not detached
        self.zookeeper = self._zookeeper()
        self.kafka = {name: self._kafka(name) for name in self.spec.cluster_names}
        self.clickhouse = self._clickhouse()
        brokers = [broker for cluster in self.kafka.values() for broker in cluster.brokers]
        everything: list[Server] = [self.zookeeper, *brokers, *self.clickhouse.values()]
        self.servers: dict[str, Server] = {server.name: server for server in everything}

    @classmethod
    def attach(cls, folder: Path) -> Stack:
        """The stack that was started in `folder`, by whomever. StackError when there is none."""
        if read_state(folder.absolute()) is None:
            raise StackError(f"there is no stack in {folder}: start one with `blockhouse stack up --folder {folder}`")
        return cls(folder, keep=True, detached=True)

    def start(self, progress: Progress | None = None) -> None:
        """Starts every server that does not run, in parallel. Raises a StackError of one and leaves the rest as is."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self._ports.hold()
        write_state(self.folder, self.spec, self._ports.as_dict())
        brokers = [server for server in self.servers.values() if isinstance(server, KafkaBroker)]
        with ThreadPoolExecutor(len(self.servers)) as pool:
            kafka = [pool.submit(_start, broker, progress) for broker in brokers]
            # ClickHouse comes up without ZooKeeper, but read-only until its next attempt.
            pool.submit(_start, self.zookeeper, progress).result()
            clickhouse = [pool.submit(_start, server, progress) for server in self.clickhouse.values()]
            for future in kafka + clickhouse:
                future.result()

    def heal(self) -> None:
        """Starts or thaws again what does not run, and waits until every replicated table can be written to.

        StackError names the tables that stay read-only for `HEAL_TIMEOUT` seconds.
        """
        if any(server.frozen or not server.alive for server in self.servers.values()):
            self.start()
        for server in self.clickhouse.values():
            if not wait_until(partial(_writable, server), timeout=HEAL_TIMEOUT):
                raise StackError(f"{server.name} keeps read-only tables: {', '.join(server.unready_tables())}")

    def stop(self) -> None:
        """Ends every server in order; the data and the ports stay."""
        _in_parallel(Server.stop, self.servers.values())

    def close(self) -> None:
        """Ends everything; without `keep` at once and with all the data."""
        _in_parallel(Server.stop if self.keep else Server.kill, self.servers.values())
        self._ports.release()
        if not self.keep:
            self.delete()

    def delete(self) -> None:
        """Removes what the stack wrote, and the folder if that leaves it empty. The servers must be stopped."""
        for server in self.servers.values():
            shutil.rmtree(server.folder, ignore_errors=True)
        (self.folder / STATE).unlink(missing_ok=True)
        if self.folder.exists() and not any(self.folder.iterdir()):
            self.folder.rmdir()

    def _zookeeper(self) -> ZooKeeperServer:
        return ZooKeeperServer(
            "zookeeper",
            self.folder / "zookeeper",
            port=self._ports["zookeeper.client"],
            dies_with_parent=self._dies_with_parent,
        )

    def _kafka(self, cluster: str) -> KafkaClusterServers:
        names = [f"kafka-{cluster}-{node}" for node in range(1, self.spec.brokers + 1)]
        peers = [broker_ports(self._ports, name) for name in names]
        return KafkaClusterServers(
            cluster,
            [
                KafkaBroker(
                    name,
                    self.folder / name,
                    spec=self.spec,
                    node=node,
                    peers=peers,
                    dies_with_parent=self._dies_with_parent,
                )
                for node, name in enumerate(names, start=1)
            ],
        )

    def _clickhouse(self) -> dict[tuple[int, int], ClickHouseServer]:
        names = {id: f"clickhouse-{id[0]}-{id[1]}" for id in self.spec.replica_ids}
        cluster = {id: self._ports[f"{name}.native"] for id, name in names.items()}
        return {
            id: ClickHouseServer(
                name,
                self.folder / name,
                spec=self.spec,
                id=id,
                ports={use: self._ports[f"{name}.{use}"] for use in ("native", "http", "interserver")},
                cluster=cluster,
                zookeeper_port=self.zookeeper.port,
                dies_with_parent=self._dies_with_parent,
            )
            for id, name in names.items()
        }


def _differences(found: StackSpec, requested: StackSpec) -> str:
    """Fields that differ; mappings by name only, for one of them holds passwords."""
    pairs = {f.name: (getattr(found, f.name), getattr(requested, f.name)) for f in fields(StackSpec)}
    return ", ".join(
        name if isinstance(a, Mapping) else f"{name} {a}, not {b}" for name, (a, b) in pairs.items() if a != b
    )


def write_state(folder: Path, spec: StackSpec, ports: dict[str, int]) -> None:
    """Records the shape and the ports of a stack. Written before anything starts, and all at once."""
    new = folder / f"{STATE}.new"
    new.touch(mode=0o600)  # there may be passwords in the spec
    new.write_text(json.dumps({"spec": asdict(spec), "ports": ports}, indent=2) + "\n")
    new.replace(folder / STATE)


def read_state(folder: Path) -> tuple[StackSpec, dict[str, int]] | None:
    """Spec and ports of the stack in `folder`, None without one; StackError when the record is unreadable."""
    path = folder / STATE
    try:
        state = json.loads(path.read_text())
        return StackSpec(**state["spec"]), {str(k): int(v) for k, v in state["ports"].items()}
    except FileNotFoundError:
        return None
    except (ValueError, TypeError, KeyError) as error:
        raise StackError(f"{path} is not readable ({error}): remove {folder}, or use another folder") from error


def _writable(server: ClickHouseServer) -> bool:
    try:
        return not server.unready_tables()
    except OSError:  # a query that waits for ZooKeeper takes longer than we want to listen
        return False


def _start(server: Server, progress: Progress | None) -> None:
    server.start()
    if progress:
        progress(server)


def _in_parallel(action: Callable[[Server], None], servers: Iterable[Server]) -> None:
    """Lets the action reach every server before it raises an error of any."""
    with ThreadPoolExecutor(32) as pool:
        futures = [pool.submit(action, server) for server in servers]
    wait(futures)
    for future in futures:
        future.result()
