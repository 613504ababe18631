"""What one ClickHouse replica holds, by the provenance columns. Asks in portions, so that memory is bounded."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping

import numpy as np

from blockhouse.config.endpoints import ClickHouse
from blockhouse.errors import Blocked
from blockhouse.streams import StreamId
from blockhouse_aggregator.audit.compare import Ints, Stored
from blockhouse_aggregator.clickhouse.client import Replica
from blockhouse_aggregator.clickhouse.names import qualified

Stream = tuple[str, int]
"""(cluster, partition): rows do not say of which topic they are."""

_IDENTITY = frozenset({"_kafka_cluster", "_kafka_partition", "_kafka_offset"})
_ROW = "_kafka_row"
_PORTION = 500_000
"""Messages per query, about: the server keeps a set of row numbers for each."""


class StoredTables:
    """The tables of one replica. Errors are ServerFault (unreachable), Permanent, or Blocked (no provenance)."""

    def __init__(self, config: ClickHouse) -> None:
        self.name = f"{config.host}:{config.port}"
        self._replica = Replica(config, timeout=120)

    def existing(self, tables: Collection[str]) -> Mapping[str, bool]:
        """Those of `tables` that exist here, and whether they number the rows of a message.

        Raises Blocked naming the tables that cannot be audited because they lack provenance columns.
        """
        rows = self._replica.query("SELECT concat(database, '.', table), name FROM system.columns")
        columns: dict[str, set[str]] = defaultdict(set)
        for table, column in rows:
            if table in tables:
                columns[table].add(column)
        blind = sorted(table for table, names in columns.items() if not names >= _IDENTITY)
        if blind:
            raise Blocked(
                f"clickhouse {self.name}: tables without columns {', '.join(sorted(_IDENTITY))} cannot be audited: "
                f"{', '.join(blind)}; leave them out with --ignore-table",
                on="provenance",
            )
        return {table: _ROW in names for table, names in columns.items()}

    def read(self, table: str, numbered: bool) -> Mapping[Stream, Stored]:
        """Everything of one table, by stream."""
        where = qualified(*table.split(".", 1))
        streams = self._replica.query(
            "SELECT _kafka_cluster, _kafka_partition, toInt64(min(_kafka_offset)), toInt64(max(_kafka_offset))"
            f" FROM {where} GROUP BY _kafka_cluster, _kafka_partition"
        )
        if not streams:
            return {}
        low, high = min(row[2] for row in streams), max(row[3] for row in streams)
        step = max(50_000, _PORTION // len(streams))
        parts: dict[Stream, list[Stored]] = {(row[0], row[1]): [] for row in streams}
        for begin in range(low, high + 1, step):
            for stream, stored in self._portion(where, numbered, begin, begin + step):
                parts.setdefault(stream, []).append(stored)
        return {stream: _joined(portions, numbered) for stream, portions in parts.items()}

    def window(self, table: str, numbered: bool, stream: StreamId, begin: int, end: int) -> Stored:
        """One table's rows of the offsets [begin, end) of one stream."""
        rows = f", toInt64(uniqExact({_ROW})), toInt64(max({_ROW}))" if numbered else ""
        found = self._replica.query(
            f"SELECT toInt64(_kafka_offset), toInt64(count()){rows} FROM {qualified(*table.split('.', 1))}"
            " WHERE _kafka_cluster = %(cluster)s AND _kafka_partition = %(partition)s"
            " AND _kafka_offset >= %(begin)s AND _kafka_offset < %(end)s GROUP BY _kafka_offset",
            {"cluster": stream.cluster, "partition": stream.partition, "begin": begin, "end": end},
        )
        return Stored(*map(_ints, zip(*found, strict=True))) if found else self.nothing()

    @staticmethod
    def nothing() -> Stored:
        """What a table without any row of a stream holds of it."""
        return Stored(*(_ints(()) for _ in range(4)))

    def close(self) -> None:
        self._replica.close()

    def _portion(self, where: str, numbered: bool, begin: int, end: int) -> list[tuple[Stream, Stored]]:
        """Rows of the offsets [begin, end) of every stream. Arrays: a tuple per message would cost ten times that."""
        inner = f", toInt64(uniqExact({_ROW})) AS d, toInt64(max({_ROW})) AS h" if numbered else ""
        outer = ", groupArray(d), groupArray(h)" if numbered else ""
        rows = self._replica.query(
            f"SELECT c, p, groupArray(o), groupArray(n){outer} FROM ("
            " SELECT _kafka_cluster AS c, _kafka_partition AS p, toInt64(_kafka_offset) AS o, toInt64(count()) AS n"
            f"{inner} FROM {where} WHERE _kafka_offset >= %(begin)s AND _kafka_offset < %(end)s GROUP BY c, p, o)"
            " GROUP BY c, p",
            {"begin": begin, "end": end},
        )
        return [((row[0], row[1]), Stored(*map(_ints, row[2:]))) for row in rows]


def _joined(portions: list[Stored], numbered: bool) -> Stored:
    def column(name: str) -> Ints:
        return np.concatenate([_ints(()), *(getattr(portion, name) for portion in portions)])

    counts = (column("distinct"), column("highest")) if numbered else (None, None)
    return Stored(column("offsets"), column("rows"), *counts)


def _ints(values: Collection[int]) -> Ints:
    return np.array(values, np.int64)
