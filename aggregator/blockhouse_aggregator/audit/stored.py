"""What one ClickHouse replica holds, by the provenance columns. Asks in portions, so that memory is bounded."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from blockhouse.config.endpoints import ClickHouse
from blockhouse.errors import Blocked
from blockhouse.schema.model import TOPIC_COLUMN
from blockhouse.streams import StreamId, incarnation
from blockhouse_aggregator.audit.compare import Ints, Stored
from blockhouse_aggregator.audit.doubts import NONE, Doubt, doubts
from blockhouse_aggregator.clickhouse.client import Replica
from blockhouse_aggregator.clickhouse.names import qualified

Stream = tuple[str, int]
"""(cluster, partition) of the topic that is audited."""

_IDENTITY = frozenset({"_kafka_cluster", "_kafka_partition", "_kafka_offset"})
_ROW = "_kafka_row"
_PORTION = 500_000
"""Messages per query, about: the server keeps a set of row numbers for each."""


@dataclass(frozen=True, slots=True)
class Columns:
    """What a table's rows hold beside cluster, partition and offset: the row inside the message (`numbered`), the topic
    by name and id (`named`); and what of them cannot be judged."""

    numbered: bool
    named: bool
    doubt: Doubt = NONE


@dataclass(frozen=True, slots=True)
class Topic:
    """The topic that is audited: its name, and its present id by cluster."""

    name: str
    ids: Mapping[str, str]

    def of(self, cluster: str) -> str:
        """What its rows hold in `_kafka_topic`."""
        return incarnation(self.name, self.ids.get(cluster, ""))


@dataclass(frozen=True, slots=True)
class Held:
    """What a table holds: of the audited topic by stream, and what cannot be judged: `others` are numbers of rows by
    cluster and topic, of other topics and of former ones of the same name; `unnamed` counts rows that name no topic and
    are of the same offsets as rows that do; `doubt` is about all of them."""

    streams: Mapping[Stream, Stored]
    others: Mapping[str, int]
    unnamed: int = 0
    doubt: Doubt = NONE


class StoredTables:
    """The tables of one replica. Errors are ServerFault (unreachable), Permanent, or Blocked (no provenance)."""

    def __init__(self, config: ClickHouse) -> None:
        self.name = f"{config.host}:{config.port}"
        self._replica = Replica(config, timeout=120)

    def existing(self, tables: Collection[str]) -> Mapping[str, Columns]:
        """Those of `tables` that exist here, and what their rows hold.

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
                reason="ProvenanceMissing",
            )
        found = doubts(self._replica, {table: frozenset(names) for table, names in columns.items()})
        return {
            table: Columns(_ROW in names, TOPIC_COLUMN in names, found.get(table, NONE))
            for table, names in columns.items()
        }

    def read(self, table: str, columns: Columns, topic: Topic) -> Held:
        """Everything of one table."""
        where = qualified(*table.split(".", 1))
        ours, params = _of_topic(topic) if columns.named else ("1", {})
        streams = self._replica.query(
            "SELECT _kafka_cluster, _kafka_partition, toInt64(min(_kafka_offset)), toInt64(max(_kafka_offset))"
            f" FROM {where} WHERE {ours} GROUP BY _kafka_cluster, _kafka_partition",
            params,
        )
        others = {}
        if columns.named:
            rows = self._replica.query(
                f"SELECT _kafka_cluster, {TOPIC_COLUMN}, toInt64(count()) FROM {where} WHERE NOT ({ours})"
                f" GROUP BY _kafka_cluster, {TOPIC_COLUMN}",
                params,
            )
            others = {f"{cluster}: {name}": count for cluster, name, count in sorted(rows)}
        if not streams:
            return Held({}, others, doubt=columns.doubt)
        low, high = min(row[2] for row in streams), max(row[3] for row in streams)
        step = max(50_000, _PORTION // len(streams))
        parts: dict[Stream, list[Stored]] = {(row[0], row[1]): [] for row in streams}
        unnamed = 0
        for begin in range(low, high + 1, step):
            bounds = {"begin": begin, "end": begin + step}
            for stream, stored, without in self._portion(where, columns, ours, params | bounds):
                parts.setdefault(stream, []).append(stored)
                unnamed += without
        joined = {stream: _joined(portions, columns.numbered) for stream, portions in parts.items()}
        return Held(joined, others, unnamed, columns.doubt)

    def window(self, table: str, columns: Columns, stream: StreamId, topic_id: str, begin: int, end: int) -> Stored:
        """One table's rows of the offsets [begin, end) of one stream."""
        where = "_kafka_cluster = %(cluster)s AND _kafka_partition = %(partition)s"
        if columns.named:
            where += f" AND {TOPIC_COLUMN} IN (%(topic)s, '')"
        params = {
            "cluster": stream.cluster,
            "partition": stream.partition,
            "topic": incarnation(stream.topic, topic_id),
            "begin": begin,
            "end": end,
        }
        found = self._portion(qualified(*table.split(".", 1)), columns, where, params)
        return found[0][1] if found else self.nothing()

    @staticmethod
    def nothing() -> Stored:
        """What a table without any row of a stream holds of it."""
        return Stored(*(_ints(()) for _ in range(4)))

    def close(self) -> None:
        self._replica.close()

    def _portion(
        self, table: str, columns: Columns, where: str, params: Mapping[str, Any]
    ) -> list[tuple[Stream, Stored, int]]:
        """Rows of the offsets [begin, end) of every stream, and how many more there are that name no topic, where
        others of their offset do: no one can determine whose. Arrays: a tuple per message would cost ten times that."""
        outer = ", groupArray(d), groupArray(h)" if columns.numbered else ""
        rows = self._replica.query(
            f"SELECT c, p, sum(u), groupArray(o), groupArray(n){outer} FROM ("
            " SELECT _kafka_cluster AS c, _kafka_partition AS p, toInt64(_kafka_offset) AS o,"
            f" {_counts(columns)} FROM {table}"
            f" WHERE ({where}) AND _kafka_offset >= %(begin)s AND _kafka_offset < %(end)s GROUP BY c, p, o)"
            " GROUP BY c, p",
            params,
        )
        return [((row[0], row[1]), Stored(*map(_ints, row[3:])), row[2]) for row in rows]


def _counts(columns: Columns) -> str:
    """SQL for one offset: rows `n`, different row numbers `d`, the highest of them `h`, and rows `u` that are in none
    of these because others name their topic."""
    if not columns.named:
        numbers = f", toInt64(uniqExact({_ROW})) AS d, toInt64(max({_ROW})) AS h" if columns.numbered else ""
        return f"toInt64(count()) AS n, toInt64(0) AS u{numbers}"
    named = f"{TOPIC_COLUMN} != ''"
    counts = f"toInt64(countIf({named})) AS k, if(k = 0, toInt64(count()), k) AS n, toInt64(count()) - n AS u"
    if not columns.numbered:
        return counts
    return (
        f"{counts}, if(k = 0, toInt64(uniqExact({_ROW})), toInt64(uniqExactIf({_ROW}, {named}))) AS d,"
        f" if(k = 0, toInt64(max({_ROW})), toInt64(maxIf({_ROW}, {named}))) AS h"
    )


def _of_topic(topic: Topic) -> tuple[str, dict[str, Any]]:
    """SQL that is true for the topic's rows as it is now, for those that name no topic, and for those of its name in
    clusters that are not audited; and its parameters."""
    params: dict[str, Any] = {"prefix": f"{topic.name}/", "length": len(topic.name) + 1}
    known = []
    for number, cluster in enumerate(sorted(topic.ids)):
        params |= {f"cluster{number}": cluster, f"topic{number}": topic.of(cluster)}
        known.append(f"(_kafka_cluster = %(cluster{number})s AND {TOPIC_COLUMN} = %(topic{number})s)")
    params["clusters"] = tuple(sorted(topic.ids))
    elsewhere = f"(_kafka_cluster NOT IN %(clusters)s AND substring({TOPIC_COLUMN}, 1, %(length)s) = %(prefix)s)"
    return " OR ".join((f"{TOPIC_COLUMN} = ''", *known, elsewhere)), params


def _joined(portions: list[Stored], numbered: bool) -> Stored:
    def column(name: str) -> Ints:
        return np.concatenate([_ints(()), *(getattr(portion, name) for portion in portions)])

    counts = (column("distinct"), column("highest")) if numbered else (None, None)
    return Stored(column("offsets"), column("rows"), *counts)


def _ints(values: Collection[int]) -> Ints:
    return np.array(values, np.int64)
