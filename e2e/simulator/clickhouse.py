"""Plays the ClickHouse of pods that ask for one: tables on a volume, nodes in ZooKeeper, a few statements, no rows.

A part is its name. What happens to a table whose registration or whose volume is gone is what real servers do in
tests/integration/test_operator_rebuild.py and test_operator_replication.py. Calls block: they are for threads.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from kazoo.client import KazooClient
from kazoo.exceptions import NodeExistsError

from blockhouse.errors import Permanent

WITHOUT_RESTORE = ("18.16",)
"""Versions that do not know SYSTEM RESTORE REPLICA, and do not start with a table that ZooKeeper does not know."""
PART_BYTES = 1024
SESSION_SECONDS = 60.0
"""On a busy machine a shorter session ends by itself, and with it every server here."""

_PATH = re.compile(r"ReplicatedMergeTree\('([^']+)'")
_RESTORE = re.compile(r"SYSTEM RESTORE REPLICA `(\w+)`\.`(\w+)`")


class Refused(Exception):
    """What the server answers instead of a result."""


class DoesNotStart(Exception):
    """The server ends instead of starting; the text is the reason."""


@dataclass
class LocalTable:
    """A table on a volume: its path in ZooKeeper, and the parts that it had when it was last read."""

    path: str
    parts: frozenset[str] = frozenset()


@dataclass
class Volume:
    """What is on one: tables by `database.table`."""

    tables: dict[str, LocalTable] = field(default_factory=dict)


class ClickHouse:
    """One server, from its start to its end."""

    def __init__(
        self, replica: str, version: str, users: Mapping[str, str], volume: Volume, zookeeper: KazooClient
    ) -> None:
        """`users` are hashes of passwords, by name."""
        self.replica = replica
        self._restores = version not in WITHOUT_RESTORE
        self._users = users
        self._volume = volume
        self._zookeeper = zookeeper

    def start(self) -> None:
        """Take up the tables of the volume. Raises DoesNotStart."""
        for name, table in self._volume.tables.items():
            if self._exists(self._own(table)):
                self._activate(table)
            elif not self._restores:
                raise DoesNotStart(f"table {name}: no node {self._own(table)}")

    def end(self) -> None:
        """Its session with ZooKeeper ends; what it has is on its volume."""
        for table in self._volume.tables.values():
            if self._exists(self._own(table)):
                table.parts = self._parts(self._own(table))
                self._zookeeper.delete(f"{self._own(table)}/is_active")

    def create(self, table: str, ddl: str) -> None:
        """CREATE TABLE. Raises Permanent where ZooKeeper has this replica already."""
        found = _PATH.search(ddl)
        if found is None:
            raise Permanent(f"table {table} is not replicated", reason="UnsupportedEngine")
        made = LocalTable(found[1])
        if self._exists(self._own(made)):
            raise Permanent(f"Code: 253. Replica {self._own(made)} already exists", reason="ReplicaExists", code=253)
        self._register(made)
        self._volume.tables[table] = made

    def answer(self, user: str, password: str, statement: str) -> str:
        """The answer by HTTP, in the format JSONEachRow. Raises Refused."""
        if self._users.get(user) != hashlib.sha256(password.encode()).hexdigest():
            raise Refused(f"Code: 516. {user}: Authentication failed")
        if "FROM system.replicas" in statement:
            return "".join(json.dumps(row) + "\n" for row in self._replicas())
        if "FROM system.parts" in statement:
            return "".join(json.dumps(row) + "\n" for row in self._part_rows())
        restore = _RESTORE.search(statement)
        if restore is None or not self._restores:
            raise Refused(f"Code: 62. Syntax error: {statement}")
        self._restore(f"{restore[1]}.{restore[2]}")
        return ""

    def _replicas(self) -> Iterator[dict[str, object]]:
        for name, table in self._volume.tables.items():
            yield {"name": name, "path": table.path, "is_readonly": int(self._readonly(table))}

    def _part_rows(self) -> Iterator[dict[str, object]]:
        for name, table in self._volume.tables.items():
            parts = table.parts if self._readonly(table) else self._parts(self._own(table))
            for part in sorted(parts):
                yield {"table_name": name, "part": part, "size": str(PART_BYTES)}

    def _restore(self, name: str) -> None:
        table = self._volume.tables.get(name)
        if table is None or not self._readonly(table):
            raise Refused(f"Code: 36. Replica of {name} must be readonly")
        self._register(table)

    def _register(self, table: LocalTable) -> None:
        """With the parts on the volume, and those that others have: nothing takes time to be copied here. Others get
        its parts in turn."""
        own = self._own(table)
        others = {f"{table.path}/replicas/{name}" for name in self._children(f"{table.path}/replicas")}
        active = sorted(other for other in others - {own} if self._exists(f"{other}/is_active"))
        parts = table.parts.union(*map(self._parts, active))
        for node in (f"{table.path}/metadata", f"{own}/queue", f"{own}/parts"):
            self._zookeeper.ensure_path(node)
        for replica in (own, *active):
            for part in parts:
                self._zookeeper.ensure_path(f"{replica}/parts/{part}")
        pointer = max((int(self._zookeeper.get(f"{other}/log_pointer")[0] or 0) for other in active), default=0)
        self._zookeeper.create(f"{own}/log_pointer", str(pointer).encode())
        self._activate(table)

    def _activate(self, table: LocalTable) -> None:
        try:
            self._zookeeper.create(f"{self._own(table)}/is_active", ephemeral=True)
        except NodeExistsError:  # of a pod before, whose end was not seen
            return

    def _readonly(self, table: LocalTable) -> bool:
        return not self._exists(f"{self._own(table)}/is_active")

    def _own(self, table: LocalTable) -> str:
        return f"{table.path}/replicas/{self.replica}"

    def _exists(self, path: str) -> bool:
        return self._zookeeper.exists(path) is not None

    def _parts(self, replica: str) -> frozenset[str]:
        return frozenset(self._children(f"{replica}/parts"))

    def _children(self, path: str) -> list[str]:
        return list(self._zookeeper.get_children(path)) if self._exists(path) else []


class Machines:
    """Volumes and ZooKeeper ensembles of the servers that are played."""

    def __init__(self) -> None:
        self._volumes: dict[str, Volume] = {}
        self._ensembles: dict[str, KazooClient] = {}

    def server(self, replica: str, version: str, users: Mapping[str, str], volume: str, zookeeper: str) -> ClickHouse:
        """A server that is not started yet, on the volume of this UID, which is empty when it is seen first."""
        if zookeeper not in self._ensembles:
            client = KazooClient(hosts=zookeeper, timeout=SESSION_SECONDS)
            client.start()
            self._ensembles[zookeeper] = client
        known = self._volumes.setdefault(volume, Volume())
        return ClickHouse(replica, version, users, known, self._ensembles[zookeeper])
