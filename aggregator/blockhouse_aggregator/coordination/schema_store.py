"""The durable home of the schema history: written by a rollout, or by an aggregator that runs alone; read by all.

    <root>/schema/id                identity of this history: a random text, written once
    <root>/schema/next              how many-th table the next one is
    <root>/schema/tables/<name>     {"id": 7340123}; name is `database.table`, percent-encoded
    <root>/schema/tables/<name>/<n> revision n, as JSON, written once

Append-only: ids and revisions are never changed nor deleted, for the metadata of streams and messages in Kafka refer to
them. An id is the table's number, which makes older tables' ids lower, with random digits behind it: a history that is
set up again, or restored from a backup, does not give out numbers that the metadata knows as other tables. (Older
versions have no digits there.) A node per revision keeps every node far below ZooKeeper's 1 MiB, however old a table
grows.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from secrets import randbelow
from urllib.parse import unquote
from uuid import uuid4

from blockhouse.config.endpoints import ZooKeeper
from blockhouse.errors import Permanent, Retryable
from blockhouse.schema.model import Revision, TableHistory
from blockhouse_aggregator.coordination.session import Session
from blockhouse_aggregator.coordination.znodes import Create, VersionConflict, Write, Znode

_RANDOM = 36**3
"""Values of the random digits: three characters in the metadata, which is in base 36."""


class RevisionConflict(Retryable):
    """Another process appended first: `history` is what the store holds now. Decide again from there."""

    def __init__(self, history: TableHistory, number: int) -> None:
        super().__init__(
            f"schema history of {history.name}: revision {number} was written by another process", after=0.0
        )
        self.history = history


class SchemaStore:
    """Histories of all tables of a pipeline. Thread-safe, and safe with any number of processes.

    Raises Retryable while ZooKeeper is unavailable, Permanent for content that is not a schema history.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._znodes = session.znodes
        self._next = session.path("schema", "next")
        self._id = session.path("schema", "id")
        self._tables = session.path("schema", "tables")

    def get(self, name: str) -> TableHistory | None:
        """The history of `database.table`, or None when the table was never heard of."""
        return self._read([name])[0]

    def all(self) -> tuple[TableHistory, ...]:
        """Every table's history, by name."""
        names = [unquote(node) for node in self._znodes.children(self._tables)]
        return tuple(history for history in self._read(names) if history is not None)

    def identity(self) -> str:
        """What distinguishes this history from another one in its place; the first who asks makes it."""
        while (node := self._znodes.get(self._id)) is None:
            self._znodes.create(self._id, uuid4().hex.encode())
        return node.data.decode()

    def ensure_id(self, name: str) -> TableHistory:
        """The history of a table, which gets a free id if it had none."""
        while True:
            if (known := self.get(name)) is not None:
                return known
            counter = self._counter()
            number = int(counter.data)
            try:
                self._znodes.together(
                    Write(self._next, str(number + 1).encode(), counter.version),
                    Create(self._path(name), json.dumps({"id": number * _RANDOM + randbelow(_RANDOM)}).encode()),
                )
            except VersionConflict:
                continue  # another process took the id, or named the table: read again

    def append(self, name: str, expected_revision_count: int, revision: Revision) -> TableHistory:
        """Write the revision after the `expected_revision_count` known ones; returns the history with it.

        Idempotent: the same revision again is no error. Raises RevisionConflict when another one is there, ValueError
        when the revision's number does not follow, Permanent for a table without an id.
        """
        if revision.number != expected_revision_count + 1:
            raise ValueError(
                f"revision {revision.number} of {name} does not follow {expected_revision_count} revisions"
            )
        known = self.get(name)
        if known is None:
            raise Permanent(f"schema history of {name}: the table has no id yet", reason="UnknownTable")
        if len(known.revisions) == expected_revision_count:
            self._znodes.create(f"{self._path(name)}/{revision.number}", revision.model_dump_json().encode())
            known = self.get(name) or known
        if known.revision(revision.number) != revision:
            raise RevisionConflict(known, revision.number)
        return known

    def watch(self, callback: Callable[[str], None]) -> None:
        """Call `callback(name)`, in a kazoo thread, for every table now and whenever it gets a revision.

        Continues for the life of the session, across reconnects.
        """
        self._znodes.ensure(self._tables)
        watched: set[str] = set()

        def on_tables(nodes: list[str]) -> None:
            for node in sorted(set(nodes) - watched):
                watched.add(node)
                self._session.client.ChildrenWatch(
                    f"{self._tables}/{node}", lambda _, name=unquote(node): callback(name)
                )

        self._session.client.ChildrenWatch(self._tables, on_tables)

    def _path(self, name: str) -> str:
        return self._session.path("schema", "tables", name)

    def _counter(self) -> Znode:
        self._znodes.ensure(self._tables)
        self._znodes.create(self._next, b"1")
        counter = self._znodes.get(self._next)
        if counter is None or not counter.data.isdigit():
            raise Permanent(f"zookeeper {self._next}: not a number", reason="SchemaHistoryUnreadable")
        return counter

    def _read(self, names: list[str]) -> list[TableHistory | None]:
        """Children first: revisions that appear after the table was read are simply not seen yet."""
        paths = [self._path(name) for name in names]
        numbers = [sorted(map(int, children)) for children in self._znodes.children_many(paths)]
        tables = self._znodes.get_many(paths)
        revisions = iter(self._znodes.get_many([f"{p}/{n}" for p, ns in zip(paths, numbers, strict=True) for n in ns]))
        histories: list[TableHistory | None] = []
        for name, path, table, ns in zip(names, paths, tables, numbers, strict=True):
            nodes = [next(revisions) for _ in ns]
            histories.append(_history(name, path, table, nodes) if table is not None else None)
        return histories


def _history(name: str, path: str, table: Znode, revisions: list[Znode | None]) -> TableHistory:
    try:
        number = json.loads(table.data)["id"]
        found = tuple(Revision.model_validate_json(node.data) for node in revisions if node is not None)
        if [revision.number for revision in found] != list(range(1, len(found) + 1)):
            raise ValueError("revisions are missing")
        return TableHistory(id=number, name=name, revisions=found)
    except (ValueError, KeyError, TypeError) as error:
        raise Permanent(f"zookeeper {path}: not a schema history: {error}", reason="SchemaHistoryUnreadable") from error


@contextmanager
def connected(config: ZooKeeper) -> Iterator[SchemaStore]:
    """A store over a session of its own, which ends with it: for producers. Raises Retryable."""
    with Session(config) as session:
        yield SchemaStore(session)
