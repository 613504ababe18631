"""Which dead letters were loaded after all: one owner set the message aside, and the next one could load it.

Such a letter is not open: sent again, its rows would be doubled. The provenance columns of the local replica show. Must
never take silence for an answer: when the replica cannot be asked, nothing is reported of its letters.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

from blockhouse.config.endpoints import ClickHouse
from blockhouse.schema.model import TOPIC_COLUMN
from blockhouse.streams import incarnation
from blockhouse_aggregator.clickhouse.client import Replica
from blockhouse_aggregator.clickhouse.names import qualified
from blockhouse_aggregator.clickhouse.tables import describe
from blockhouse_aggregator.dlq.letters import Letter

_NEEDED = frozenset({"_kafka_cluster", "_kafka_partition", "_kafka_offset"})
_AT_ONCE = 1000


def loaded(clickhouse: ClickHouse, letters: Iterable[Letter], topic_ids: Mapping[str, str]) -> frozenset[str]:
    """Keys of the letters whose messages have rows in their table. Raises Retryable or Permanent.

    `topic_ids` are the present ones by cluster: offsets of an older topic of the same name mean other messages.
    """
    asked: dict[tuple[str, str, str, int], dict[int, str]] = defaultdict(dict)
    for letter in letters:
        if letter.table and letter.topic_id in ("", topic_ids.get(letter.stream.cluster, "")):
            s = letter.stream
            asked[letter.table, s.cluster, s.topic, s.partition][letter.offset] = letter.key
    found: set[str] = set()
    with Replica(clickhouse) as replica:
        provenance = {table: _provenance(replica, table) for table, _, _, _ in asked}
        for (table, cluster, topic, partition), keys in asked.items():
            if provenance[table] >= _NEEDED:
                # Rows that name no topic are of this one as far as anyone knows.
                topics = (incarnation(topic, topic_ids.get(cluster, "")), "")
                named = topics if TOPIC_COLUMN in provenance[table] else ()
                stored = _stored(replica, table, (cluster, partition), sorted(keys), named)
                found |= {keys[offset] for offset in stored}
    return frozenset(found)


def _provenance(replica: Replica, table: str) -> frozenset[str]:
    database, _, name = table.partition(".")
    known = describe(replica, database, name)
    return known.provenance if known is not None else frozenset()


def _stored(
    replica: Replica, table: str, stream: tuple[str, int], offsets: list[int], topics: tuple[str, ...]
) -> set[int]:
    """Offsets of which rows are stored; only rows that hold one of `topics`, unless there are none."""
    database, _, name = table.partition(".")
    cluster, partition = stream
    of_topics = f" AND {TOPIC_COLUMN} IN %(topics)s" if topics else ""
    found: set[int] = set()
    for at in range(0, len(offsets), _AT_ONCE):
        rows = replica.query(
            f"SELECT DISTINCT _kafka_offset FROM {qualified(database, name)} WHERE _kafka_cluster = %(cluster)s"
            f" AND _kafka_partition = %(partition)s AND _kafka_offset IN %(offsets)s{of_topics}",
            {
                "cluster": cluster,
                "partition": partition,
                "offsets": tuple(offsets[at : at + _AT_ONCE]),
                "topics": topics,
            },
        )
        found |= {offset for (offset,) in rows}
    return found
