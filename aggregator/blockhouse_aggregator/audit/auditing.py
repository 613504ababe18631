"""The audit itself: read the logs, read every replica, compare; again until exact, if asked to wait."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from blockhouse.config.endpoints import ClickHouse, KafkaCluster
from blockhouse.errors import BlockhouseError, Retryable
from blockhouse.streams import StreamId
from blockhouse_aggregator.audit import manifest as manifests
from blockhouse_aggregator.audit.compare import Difference, Ints, Produced, Stored, compare, still_dead
from blockhouse_aggregator.audit.produced import NO_TABLE, DeadLetterLog, ProducedLog
from blockhouse_aggregator.audit.report import AuditReport, TableResult, table_result
from blockhouse_aggregator.audit.stored import Held, StoredTables, Stream, Topic
from blockhouse_aggregator.audit.values.judging import Progress, ValueAudit, ValuesSpec
from blockhouse_aggregator.audit.values.report import ValuesReport
from blockhouse_aggregator.audit.values.rows import ReplicaValues
from blockhouse_aggregator.kafka.group_offsets import committed_offsets

_PAUSE = 2.0


class AuditImpossible(BlockhouseError):
    """Nothing can be proved: a cluster, a replica or the manifest could not be read, or there is nothing to compare."""

    exit_code = 3


@dataclass(frozen=True, slots=True)
class AuditSpec:
    """What to compare with what. `database` is that of tables whose header names none.

    Without `dead_letter_topic` no message may be missing. `wait` is how many seconds to try again until exact. With
    `values` the values of the stored rows are compared too, once, at the end.
    """

    clusters: tuple[KafkaCluster, ...]
    topic: str
    replicas: tuple[ClickHouse, ...]
    database: str = "default"
    dead_letter_topic: str | None = None
    manifest: Path | None = None
    ignore_tables: frozenset[str] = frozenset()
    wait: float = 0.0
    left_out: frozenset[str] = frozenset()
    """Kafka clusters that are not compared: rows of their messages are not judged."""
    values: ValuesSpec | None = None
    group: str | None = None
    """Of the aggregators: missing rows at or above its committed offsets are counted as `waiting` besides. Without it,
    or where the cluster does not give them, none is."""


def run(
    spec: AuditSpec,
    *,
    progress: Callable[[AuditReport], None] = lambda _: None,
    judging: Progress = lambda *_: None,
) -> AuditReport:
    """The report of the first exact comparison or, when the time to wait is over, of the last one.

    `progress` is called with every report that is not the last, `judging` with how many messages' values were
    compared, and of how many. Raises AuditImpossible.
    """
    end = time.monotonic() + spec.wait
    with _Audit(spec) as audit:
        while True:
            try:
                report = audit.compare()
                if report.exact or time.monotonic() >= end:
                    return replace(report, values=audit.values(judging))
                progress(report)
            except Retryable as error:
                if time.monotonic() >= end:
                    raise AuditImpossible(f"the audit could not be done: {error}") from error
            except AuditImpossible:
                if time.monotonic() >= end:
                    raise
            except BlockhouseError as error:
                raise AuditImpossible(f"the audit could not be done: {error}") from error
            time.sleep(max(0.0, min(_PAUSE, end - time.monotonic())))


@dataclass(frozen=True, slots=True)
class _Snapshot:
    """What one replica had at one moment: its tables, and what they hold by stream."""

    replica: str
    tables: Mapping[str, Held]


class _Audit:
    """Keeps the logs between two comparisons, so that waiting does not read them again."""

    def __init__(self, spec: AuditSpec) -> None:
        if not spec.clusters or not spec.replicas:
            raise AuditImpossible("an audit needs a Kafka cluster and a ClickHouse replica")
        self._spec = spec
        self._closing = ExitStack()
        self._logs = {c.name: ProducedLog(c, spec.topic, spec.database) for c in spec.clusters}
        dead = spec.dead_letter_topic
        self._dead = {c.name: DeadLetterLog(c, dead, spec.topic) for c in spec.clusters} if dead else {}
        self._replicas = [StoredTables(config) for config in spec.replicas]
        self._manifest: Mapping[manifests.Key, Produced] = {}
        self._promised: Mapping[str, Mapping[StreamId, int]] = {}
        """By cluster that gives them, the committed offsets: everything below is promised to be loaded."""

    def __enter__(self) -> _Audit:
        for log in self._logs.values():
            self._closing.callback(log.close)
        for dead in self._dead.values():
            self._closing.callback(dead.close)
        for replica in self._replicas:
            self._closing.callback(replica.close)
        try:
            if self._spec.manifest is not None:
                listed = manifests.read_manifest(self._spec.manifest, self._spec.topic)
                self._manifest = {key: sent for key, sent in listed.items() if key[1] not in self._spec.left_out}
        except BlockhouseError as error:
            raise AuditImpossible(str(error)) from error
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.close()

    def compare(self) -> AuditReport:
        """One comparison. Kafka is read first, so that a stored row without a message is no matter of timing."""
        self._read_logs()
        self._promised = dict(self._read_promises())  # before the replicas: what is promised later may not be there
        judged = {(c, p): b.end for c, log in self._logs.items() for p, b in log.bounds.items()}
        tables = {table for log in self._logs.values() for table in log.tables} | {key[0] for key in self._manifest}
        tables -= self._spec.ignore_tables
        if not tables:
            raise AuditImpossible(f"topic {self._spec.topic} holds no message: there is nothing to compare")
        snapshots = [self._snapshot(replica, tables) for replica in self._replicas]
        if any(_beyond(snapshot, judged) for snapshot in snapshots):
            self._read_logs()  # rows of messages that were produced since
        results, expired = [], 0
        for table in sorted(tables):
            for snapshot in snapshots:
                result, old = self._judge(table, snapshot, judged)
                results.append(result)
                expired += old
        names = tuple(snapshot.replica for snapshot in snapshots)
        return AuditReport(
            self._spec.topic, tuple(results), self._check_manifest(), expired, names, clusters=tuple(sorted(self._logs))
        )

    def values(self, progress: Progress) -> ValuesReport | None:
        """The values of what `compare` has read, if asked for. Raises AuditImpossible if none can be judged."""
        if self._spec.values is None:
            return None
        tables = {table for log in self._logs.values() for table in log.tables} - self._spec.ignore_tables - {NO_TABLE}
        produced = {table: dict(self._to_be_stored(table)) for table in sorted(tables)}
        with ExitStack() as closing:
            replicas = [ReplicaValues(config) for config in self._spec.replicas]
            for replica in replicas:
                closing.callback(replica.close)
            clusters = {cluster.name: cluster for cluster in self._spec.clusters}
            audit = ValueAudit(self._spec.values, clusters, replicas, self._spec.database, progress)
            report = audit.compare(produced)
        if not report.judged:
            raise AuditImpossible(f"no value could be judged: {report.why_not()}")
        return report

    def _to_be_stored(self, table: str) -> Iterator[tuple[StreamId, Ints]]:
        """The offsets of the table's messages, without those of dead letters, by stream."""
        for cluster, log in self._logs.items():
            for partition in log.bounds:
                offsets = log.produced(table, partition).offsets
                dead = self._dead[cluster].offsets(partition) if self._dead else _NO_OFFSETS
                yield StreamId(cluster, self._spec.topic, partition), offsets[~np.isin(offsets, dead)]

    def _read_logs(self) -> None:
        for log in self._logs.values():
            log.read()
        for dead in self._dead.values():
            dead.read()

    def _read_promises(self) -> Iterator[tuple[str, Mapping[StreamId, int]]]:
        if self._spec.group is None:
            return
        for cluster in self._spec.clusters:
            try:
                found = committed_offsets(cluster, self._spec.group, self._spec.topic)
            except BlockhouseError:
                continue  # what is missing there is taken for lost, as without a group
            yield cluster.name, {stream: at.offset or 0 for stream, at in found.items()}

    def _promise(self, stream: StreamId) -> int | None:
        """Below which offset everything is promised to be loaded; None where that is not known."""
        promised = self._promised.get(stream.cluster)
        return None if promised is None else promised.get(stream, 0)

    def _snapshot(self, replica: StoredTables, tables: set[str]) -> _Snapshot:
        existing = replica.existing(tables - {NO_TABLE})
        topic = Topic(self._spec.topic, {cluster: log.topic_id for cluster, log in self._logs.items()})
        held = {table: replica.read(table, columns, topic) for table, columns in existing.items()}
        return _Snapshot(replica.name, held)

    def _judge(self, table: str, snapshot: _Snapshot, judged: Mapping[Stream, int]) -> tuple[TableResult, int]:
        """The table on the replica, and how many of its rows are older than the logs."""
        held = snapshot.tables.get(table, _HOLDS_NOTHING)
        stored = held.streams
        differences: list[tuple[StreamId, Difference]] = []
        messages = rows = dead_letters = open_letters = expired = 0
        for cluster, partition in sorted({*judged, *stored}):
            if cluster in self._spec.left_out:
                continue
            found = stored.get((cluster, partition), _NOTHING)
            produced, dead, begin = self._expectation(table, cluster, partition)
            known = (found.offsets >= begin) | np.isin(found.offsets, produced.offsets)
            expired += int(found.rows[~known].sum())
            found = found.only(known)
            end = judged.get((cluster, partition), 0)
            produced = produced.only((produced.offsets < end) | np.isin(produced.offsets, found.offsets))
            dead = still_dead(dead, found)
            live = produced.without(dead)
            stream = StreamId(cluster, self._spec.topic, partition)
            differences.append((stream, compare(live, found, promised=self._promise(stream))))
            messages += len(produced.offsets)
            rows += int(live.rows.sum())
            dead_letters += int(np.isin(produced.offsets, dead).sum())
            letters = self._dead[cluster].open(partition) if cluster in self._dead else _NO_OFFSETS
            open_letters += len(np.intersect1d(np.intersect1d(dead, letters), produced.offsets))
        result = table_result(
            table,
            snapshot.replica,
            exists=table in snapshot.tables,
            messages=messages,
            rows=rows,
            dead_letters=dead_letters,
            open_letters=open_letters,
            differences=differences,
            others=held.others,
            unnamed=held.unnamed,
            doubt=held.doubt,
        )
        return result, expired

    def _expectation(self, table: str, cluster: str, partition: int) -> tuple[Produced, Ints, int]:
        """The messages, the offsets that were dead-lettered, and where the log begins. A stream we know nothing of is
        expected to hold nothing."""
        log = self._logs.get(cluster)
        if log is None or partition not in log.bounds:
            return _NO_MESSAGES, _NO_OFFSETS, 0
        begin = log.bounds[partition].begin
        listed = self._manifest.get((table, cluster, partition))
        produced = manifests.with_expired(log.produced(table, partition), listed, begin)
        dead = self._dead[cluster].offsets(partition) if self._dead else _NO_OFFSETS
        return produced, dead, begin

    def _check_manifest(self) -> manifests.ManifestResult | None:
        if self._spec.manifest is None:
            return None
        pairs = []
        for (table, cluster, partition), listed in self._manifest.items():
            log = self._logs.get(cluster)
            bounds = log.bounds.get(partition) if log else None
            kept = log.produced(table, partition) if log and bounds else _NO_MESSAGES
            pairs.append((listed, kept, bounds.begin if bounds else 0))
        return manifests.check(pairs)


_NO_OFFSETS: Ints = np.array([], np.int64)
_NO_MESSAGES = Produced(_NO_OFFSETS, _NO_OFFSETS)
_HOLDS_NOTHING = Held({}, {})
_NOTHING = Stored(_NO_OFFSETS, _NO_OFFSETS, _NO_OFFSETS, _NO_OFFSETS)


def _beyond(snapshot: _Snapshot, judged: Mapping[Stream, int]) -> bool:
    """Whether the replica has rows of messages that had not been read from Kafka."""
    return any(
        len(stored.offsets) > 0 and int(stored.offsets.max()) >= judged.get(stream, 0)
        for held in snapshot.tables.values()
        for stream, stored in held.streams.items()
    )
