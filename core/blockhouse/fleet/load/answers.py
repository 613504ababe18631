"""What Prometheus answered, as a sample: series become brokers, topics and partitions of the cluster.

No client here. It must never take a missing series for an idle one.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from blockhouse.fleet.load.cluster import ClusterNames, some_names
from blockhouse.load.model import BrokerLoad, PartitionLoad, Problem, ProblemKind, Quality, Sample
from blockhouse.placement.model import TopicPartition

Series = Sequence[tuple[Mapping[str, str], float]]
STALE_WINDOWS = 2


@dataclass(slots=True)
class Interpreter:
    """Answers by the name of their query. `pod` finds a broker's id in the label `pod`."""

    answers: Mapping[str, Series]
    names: ClusterNames
    pod: re.Pattern[str]
    window: float
    now: float
    problems: list[Problem] = field(default_factory=list)
    _strangers: set[str] = field(default_factory=set)

    def sample(self) -> Sample:
        counts = self.names.counts
        measured = self._measured_at()
        brokers = self._broker_loads(measured)
        topics = self._topics(counts)
        partitions = self._partitions()
        self._report_missing(brokers, topics, counts)
        at = min((measured[id] for id in brokers if id in measured), default=self.now)
        return Sample(
            cluster_id=self.names.cluster_id,
            source="prometheus",
            at=at,
            window=self.window,
            partitions=partitions,
            topics=topics,
            brokers=brokers,
            problems=tuple(self.problems),
        )

    def _by_broker(self, name: str) -> dict[int, float]:
        """Values of one query by broker; several series of one (a pod that was restarted) are added up."""
        hosts = {host: id for id, host in self.names.hosts.items()}
        found: dict[int, float] = {}
        for labels, value in self.answers.get(name, ()):
            match = self.pod.search(labels.get("pod", ""))
            host = labels.get("instance", "").rpartition(":")[0]
            id = int(match[1]) if match else hosts.get(host)
            if id is None or id not in self.names.hosts:
                self._strangers.add(labels.get("pod") or labels.get("instance") or "a series without pod or instance")
            elif self._plausible(value, f"broker {id}", name):
                found[id] = found.get(id, 0.0) + value
        return found

    def _measured_at(self) -> dict[int, float]:
        hosts = {host: id for id, host in self.names.hosts.items()}
        found: dict[int, float] = {}
        for labels, value in self.answers.get("measured_at", ()):
            match = self.pod.search(labels.get("pod", ""))
            id = int(match[1]) if match else hosts.get(labels.get("instance", "").rpartition(":")[0])
            if id is not None and math.isfinite(value):
                found[id] = max(value, found.get(id, value))
        return found

    def _broker_loads(self, measured: Mapping[int, float]) -> dict[int, BrokerLoad]:
        client_in, client_out = self._by_broker("bytes_in"), self._by_broker("bytes_out")
        copied_in, copied_out = self._by_broker("replication_in"), self._by_broker("replication_out")
        moved_in, moved_out = self._by_broker("moved_in"), self._by_broker("moved_out")
        loads: dict[int, BrokerLoad] = {}
        for id in sorted(self.names.hosts):
            age = self.now - measured.get(id, self.now)
            if age > STALE_WINDOWS * self.window:
                text = f"its newest figure is {age:.0f} s old, more than {STALE_WINDOWS} windows of {self.window:g} s"
                self.problems.append(Problem(ProblemKind.UNAVAILABLE, f"broker {id}", text))
            elif id in client_in or id in client_out:
                rx, tx = client_in.get(id), client_out.get(id)
                loads[id] = BrokerLoad(
                    tx=None if tx is None else tx + copied_out.get(id, 0.0),
                    rx=None if rx is None else rx + copied_in.get(id, 0.0),
                    moved_out=moved_out.get(id),
                    moved_in=moved_in.get(id),
                )
        return loads

    def _topics(self, counts: Mapping[str, int]) -> dict[str, PartitionLoad]:
        messages = {
            labels["topic"]: value for labels, value in self.answers.get("topic_messages", ()) if "topic" in labels
        }
        topics: dict[str, PartitionLoad] = {}
        for labels, value in self.answers.get("topic_bytes", ()):
            topic = labels.get("topic", "")
            if topic not in counts:
                self._strangers.add(f"topic {topic}")
            elif self._plausible(value, f"topic {topic}", "topic_bytes"):
                records = messages.get(topic)
                topics[topic] = PartitionLoad(value, records if records is not None and _rate(records) else None)
        return topics

    def _partitions(self) -> dict[TopicPartition, PartitionLoad]:
        messages = dict(self._keyed("partition_messages"))
        return {
            key: PartitionLoad(value, messages.get(key), Quality.ESTIMATED)
            for key, value in self._keyed("partition_bytes")
            if key in self.names.leaders
        }

    def _keyed(self, name: str) -> Iterable[tuple[TopicPartition, float]]:
        for labels, value in self.answers.get(name, ()):
            number = labels.get("partition", "")
            if number.isdecimal() and _rate(value):
                yield TopicPartition(labels.get("topic", ""), int(number)), value

    def _plausible(self, value: float, subject: str, query: str) -> bool:
        if not _rate(value):
            text = f"query {query} gave {value}: that is no rate, it is left out"
            self.problems.append(Problem(ProblemKind.IMPLAUSIBLE, subject, text))
        return _rate(value)

    def _report_missing(
        self, brokers: Mapping[int, object], topics: Mapping[str, object], counts: Mapping[str, int]
    ) -> None:
        """Names that match nothing, beside the names that the provider has."""
        strangers = (
            f"; it has names that the cluster does not: {some_names(self._strangers)}" if self._strangers else ""
        )
        stale = {problem.subject for problem in self.problems}
        missing = [str(id) for id in sorted(self.names.hosts) if id not in brokers and f"broker {id}" not in stale]
        if missing:
            text = f"Prometheus has no rate of brokers {some_names(missing)}{strangers}"
            self.problems.append(Problem(ProblemKind.UNKNOWN, "brokers", text))
        unnamed = [topic for topic in counts if topic not in topics]
        if unnamed and "topic_bytes" in self.answers:
            text = f"Prometheus has no rate of {len(unnamed)} topics ({some_names(unnamed)}){strangers}"
            self.problems.append(Problem(ProblemKind.UNKNOWN, "topics", text))


def _rate(value: float) -> bool:
    return math.isfinite(value) and value >= 0
