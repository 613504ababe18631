"""One Kafka cluster under watch: a thread that reads, judges, asks for the logs' ends and remembers.

An unavailable cluster is waited for indefinitely, and reported; the others do not notice.
"""

from __future__ import annotations

import threading
import time

import structlog

from blockhouse.config.endpoints import KafkaCluster
from blockhouse.config.verifier import VerifierConfig
from blockhouse.contract.verifier import WATCHING, Coverage
from blockhouse.errors import BlockhouseError
from blockhouse_aggregator.verifier.anomalies import Anomalies
from blockhouse_aggregator.verifier.anomaly import Anomaly, iso_or_none
from blockhouse_aggregator.verifier.coverage import history_coverage
from blockhouse_aggregator.verifier.memory import anomaly_item, forgotten_item, progress_items, recall, stream_item
from blockhouse_aggregator.verifier.offsets.bounds import LogBounds
from blockhouse_aggregator.verifier.offsets.checkpoint import CheckpointTopic
from blockhouse_aggregator.verifier.offsets.evidence import Evidence
from blockhouse_aggregator.verifier.offsets.reader import OFFSETS_TOPIC, NoCommitsYet, OffsetsReader
from blockhouse_aggregator.verifier.streams import ClusterStreams
from blockhouse_aggregator.verifier.watched import OTHER_TOPICS, Answer

log = structlog.get_logger(__name__)
_IDLE = 0.2
"""Seconds to wait for records: how late the thread notices that it shall end or that it is time for something else."""


class ClusterWatch:
    """Watches `cluster` from `start` to `stop`. Other threads may ask for `coverage` and `ready`."""

    def __init__(self, config: VerifierConfig, cluster: KafkaCluster, anomalies: Anomalies) -> None:
        self.name = cluster.name
        self.streams = ClusterStreams(cluster.name, config.groups, config.topics)
        self.failure: BaseException | None = None
        self._config, self._cluster, self._anomalies = config, cluster, anomalies
        self._memory = CheckpointTopic(cluster, config.checkpoint_topic, config.checkpoint.replication_factor)
        self._lock = threading.Lock()
        self._ending = threading.Event()
        self._heard: float | None = None
        self._problem = "connecting"
        self._recalled = not config.checkpoint.enabled
        self._caught_up = False
        self._looked_ms: int | None = None
        self._saved_ms: int | None = None
        self._thread = threading.Thread(target=self._run, name=f"watch-{cluster.name}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self, timeout: float) -> None:
        self._ending.set()
        self._thread.join(timeout)

    @property
    def ready(self) -> bool:
        """It has read the history that was there when it began, or there is no way to it."""
        return self._caught_up or bool(self._problem and self._problem != "connecting")

    @property
    def in_sight(self) -> bool:
        """Everything was read, and the cluster has answered lately."""
        return self._caught_up and self._heard is not None and self._silent_for() < self._config.lost_after

    def coverage(self) -> Coverage:
        """What has been seen of the cluster and what has not, as `GET /verdict` shows it."""
        with self._lock:
            streams = self.streams
            state = WATCHING if self.in_sight else "reading" if self._heard is not None else "unreachable"
            if self._caught_up and not self.in_sight:
                state = "unreachable"
            return Coverage(
                state=state,
                problem=self._problem,
                caught_up=self._caught_up,
                behind=sum(p.behind for p in streams.progress.values()),
                remembered=iso_or_none(self._saved_ms),
                looked=iso_or_none(self._looked_ms),
                other_topics=streams.counts[OTHER_TOPICS],
                breaks=streams.counts["breaks"],
                **dict(history_coverage(streams)),
            )

    # --- the thread -----------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while not self._ending.is_set():
                try:
                    self._watch()
                except NoCommitsYet as error:
                    self._ending.wait(error.after)  # in sight, and without any history
                except BlockhouseError as error:
                    self._note(str(error))
                    self._ending.wait(getattr(error, "after", 2.0))
        except BaseException as error:  # the process has to know, and end: a watch that is dead must not look alive
            self.failure = error
            log.exception("verifier.died", cluster=self.name)
            raise

    def _watch(self) -> None:
        """Read until ordered to end. Raises BlockhouseError when the cluster cannot be read: begin again where it
        was."""
        if not self._recalled:
            self._recall()
        bounds = LogBounds(self._cluster)
        evidence = Evidence(self._cluster, self._config.hole_check)
        reader = OffsetsReader(self._cluster)
        try:
            self._begin(reader)
            next_look = next_save = time.monotonic()
            while not self._ending.is_set():
                self._read(reader)
                now = time.monotonic()
                if now >= next_look and self._caught_up:
                    self._look(bounds, evidence)
                    next_look = time.monotonic() + self._config.log_interval
                if self._config.checkpoint.enabled and now >= next_save + self._config.checkpoint.interval:
                    self._save()
                    next_save = time.monotonic()
        finally:
            reader.close()
        if self._config.checkpoint.enabled:
            self._save()

    def _recall(self) -> None:
        items = self._memory.load()
        with self._lock:
            reported = recall(items, self.streams, time.time() - time.monotonic())
        for anomaly in reported:
            self._anomalies.restore(anomaly)
        self._recalled = True
        streams = len(self.streams.streams)
        log.info("verifier.recalled", cluster=self.name, streams=streams, anomalies=len(reported))

    def _begin(self, reader: OffsetsReader) -> None:
        try:
            partitions = reader.partitions()
        except NoCommitsYet:
            self._hear()
            self._caught_up = True  # there is no history
            raise
        with self._lock:
            self._caught_up = False
            for number, (_, end) in partitions.items():
                self.streams.expect(number, end)
        reader.start({number: self.streams.progress[number].next for number in partitions})
        log.info("verifier.reads", cluster=self.name, partitions=len(partitions))

    def _read(self, reader: OffsetsReader) -> None:
        batch = reader.read(_IDLE)
        if not (batch.records or batch.ends or batch.broken):
            return
        now_ms = time.time_ns() // 1_000_000
        with self._lock:
            for partition in batch.broken:
                self.streams.break_off(partition)
            found = list(self.streams.observe(batch.records, now_ms))
            for partition, end in batch.ends.items():
                self.streams.progress[partition].reached(end)
            self._caught_up = self._caught_up or self.streams.caught_up
        self._hear()
        for anomaly in found:
            self._anomalies.add(anomaly)
        for partition in batch.broken:
            log.warning("verifier.history_broken", cluster=self.name, partition=partition)

    def _look(self, asking: LogBounds, evidence: Evidence) -> None:
        asked_ms = time.time_ns() // 1_000_000
        ends = asking.ends(OFFSETS_TOPIC, list(self.streams.progress))
        bounds = asking.ask([stream.id for stream in self.streams.streams.values() if stream.known is not None])
        self._hear()
        now_ms = time.time_ns() // 1_000_000
        with self._lock:
            for partition, end in ends.items():
                self.streams.expect(partition, end)
            judged = list(self.streams.inspect(bounds, time.monotonic(), now_ms, self._config.stalled_after))
            doubts = self.streams.doubts(bounds)
        answers = evidence.answers(doubts, bounds)
        with self._lock:
            judged += [(anomaly, True) for anomaly in self.streams.settle(answers, bounds)]
            if all(answer is not Answer.NOT_NOW for _, answer in answers):
                self._looked_ms = asked_ms  # what was committed before is judged, suspicions and all
        for anomaly, holds in judged:
            if holds:
                self._anomalies.add(anomaly)
            else:
                self._anomalies.end(anomaly, now_ms)

    def _save(self) -> None:
        """Streams first, then anomalies, then how far the log was read: a crash between makes something read twice,
        never not at all."""
        changed = [stream for stream in self.streams.streams.values() if stream.changed]
        anomalies: list[Anomaly] = self._anomalies.unsaved(self.name)
        dropped = self._anomalies.dropped(self.name)
        now_ms, offset = time.time_ns() // 1_000_000, time.time() - time.monotonic()
        try:
            self._memory.save(
                [
                    *(stream_item(stream, offset) for stream in changed),
                    *map(anomaly_item, anomalies),
                    *map(forgotten_item, dropped),
                    *progress_items(self.streams),
                ]
            )
        except BlockhouseError:
            self._anomalies.not_saved(anomalies)
            raise
        for stream in changed:
            stream.changed = False
        self._saved_ms = now_ms

    def _hear(self) -> None:
        if self._problem:
            log.info("verifier.in_sight", cluster=self.name)
        self._heard, self._problem = time.monotonic(), ""

    def _note(self, problem: str) -> None:
        if problem != self._problem:
            log.warning("verifier.out_of_sight", cluster=self.name, error=problem)
        self._problem = problem

    def _silent_for(self) -> float:
        return time.monotonic() - (self._heard or 0.0)
