"""A ClickHouse that is played: what becomes of a table whose registration or whose volume is gone."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest
from kazoo.exceptions import NodeExistsError

from blockhouse.errors import Permanent
from e2e.simulator.clickhouse import ClickHouse, DoesNotStart, Refused, Volume

PATH = "/clickhouse/db.t"
DDL = f"CREATE TABLE db.t (a UInt64) ENGINE = ReplicatedMergeTree('{PATH}', '{{replica}}') ORDER BY a"
USERS = {"cluster": hashlib.sha256(b"secret").hexdigest()}
RESTORE = "SYSTEM RESTORE REPLICA `db`.`t`"


class ZooKeeper:
    """Nodes by path."""

    def __init__(self) -> None:
        self.nodes: dict[str, bytes] = {}

    def exists(self, path: str) -> bytes | None:
        return self.nodes.get(path)

    def ensure_path(self, path: str) -> None:
        parts = path.split("/")
        for end in range(2, len(parts) + 1):
            self.nodes.setdefault("/".join(parts[:end]), b"")

    def create(self, path: str, value: bytes = b"", *, ephemeral: bool = False) -> None:
        if path in self.nodes:
            raise NodeExistsError
        self.nodes[path] = value

    def get(self, path: str) -> tuple[bytes, None]:
        return self.nodes[path], None

    def get_children(self, path: str) -> list[str]:
        below = [node.removeprefix(f"{path}/") for node in self.nodes if node.startswith(f"{path}/")]
        return [name for name in below if "/" not in name]

    def delete(self, path: str) -> None:
        self.nodes.pop(path, None)

    def forget(self, replica: str) -> None:
        own = f"{PATH}/replicas/{replica}"
        self.nodes = {path: value for path, value in self.nodes.items() if not f"{path}/".startswith(f"{own}/")}

    def parts(self, replica: str) -> set[str]:
        return set(self.get_children(f"{PATH}/replicas/{replica}/parts"))


def server(zookeeper: ZooKeeper, replica: str, volume: Volume | None = None, version: str = "26.9") -> ClickHouse:
    client: Any = zookeeper
    return ClickHouse(replica, version, USERS, Volume() if volume is None else volume, client)


def ask(clickhouse: ClickHouse, statement: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in clickhouse.answer("cluster", "secret", statement).splitlines()]


@pytest.fixture
def zookeeper() -> ZooKeeper:
    """With a replica that has a part."""
    made = ZooKeeper()
    server(made, "r1").create("db.t", DDL)
    made.ensure_path(f"{PATH}/replicas/r1/parts/all_0_0_0")
    return made


def test_a_table_that_is_created_has_what_the_others_have(zookeeper: ZooKeeper) -> None:
    server(zookeeper, "r2").create("db.t", DDL)

    assert zookeeper.parts("r2") == {"all_0_0_0"}


def test_a_registration_without_a_table_refuses_the_same_replica(zookeeper: ZooKeeper) -> None:
    with pytest.raises(Permanent, match="already exists"):
        server(zookeeper, "r1").create("db.t", DDL)


def returned(zookeeper: ZooKeeper, version: str) -> ClickHouse:
    """A server on a volume whose replica ZooKeeper has forgotten, while the other one got a part."""
    volume = Volume()
    first = server(zookeeper, "r2", volume)
    first.create("db.t", DDL)
    zookeeper.ensure_path(f"{PATH}/replicas/r2/parts/all_7_7_0")
    first.end()
    zookeeper.forget("r2")
    zookeeper.ensure_path(f"{PATH}/replicas/r1/parts/all_9_9_0")
    return server(zookeeper, "r2", volume, version)


def test_an_old_server_does_not_start_with_a_table_that_zookeeper_forgot(zookeeper: ZooKeeper) -> None:
    with pytest.raises(DoesNotStart, match="r2"):
        returned(zookeeper, "18.16").start()


def test_a_current_one_has_it_read_only_until_it_is_restored(zookeeper: ZooKeeper) -> None:
    back = returned(zookeeper, "26.9")
    back.start()
    (row,) = ask(back, "SELECT ... FROM system.replicas FORMAT JSONEachRow")
    assert row == {"name": "db.t", "path": PATH, "is_readonly": 1}

    back.answer("cluster", "secret", RESTORE)

    (row,) = ask(back, "SELECT ... FROM system.replicas FORMAT JSONEachRow")
    assert row["is_readonly"] == 0
    assert zookeeper.parts("r2") == zookeeper.parts("r1") == {"all_0_0_0", "all_7_7_0", "all_9_9_0"}
    assert {part["part"] for part in ask(back, "... FROM system.parts ...")} == zookeeper.parts("r2")


@pytest.mark.parametrize(
    ("user", "password", "statement"),
    [("cluster", "wrong", RESTORE), ("stranger", "", RESTORE), ("cluster", "secret", "DROP TABLE db.t")],
)
def test_it_refuses_strangers_and_what_it_does_not_know(
    zookeeper: ZooKeeper, user: str, password: str, statement: str
) -> None:
    with pytest.raises(Refused):
        returned(zookeeper, "26.9").answer(user, password, statement)


def test_an_old_one_does_not_know_how_to_restore(zookeeper: ZooKeeper) -> None:
    with pytest.raises(Refused, match="Syntax error"):
        returned(zookeeper, "18.16").answer("cluster", "secret", RESTORE)
