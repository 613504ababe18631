"""The topics of one Kafka cluster, observed once for all shards, and repaired together.

A cluster of thousands of partitions must not be read by each of thousands of shards: the first that asks has it read,
those that ask meanwhile wait for the same answer, and the next ones find it here; of topics that are not known yet, or
lack something, only these are read. Only the topic of a shard that asks is ever changed, and always by what was read of
it just then: new topics are placed with each other in mind.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import structlog

from blockhouse.config.endpoints import KafkaCluster
from blockhouse.errors import Permanent, Retryable
from blockhouse.fleet.topics import ClusterSeen, DesiredTopic, TopicStep, plan_topics
from blockhouse_operator.adapters.topics import carry_out, observe_topics
from blockhouse_operator.api.conditions import Reason, reason_of_silence
from blockhouse_operator.api.status import TopicStatus
from blockhouse_operator.reconcile.services import Services

log = structlog.get_logger(__name__)

LOOK_AGAIN_SECONDS = 60.0
"""How long an observation counts for topics that are as specified. All topics are read so often, and single ones in
between."""
TROUBLE_LASTS_SECONDS = 5.0
"""The same for others: a person may be repairing them."""
PATIENCE_SECONDS = 2.0
"""How long a reconcile waits for a Kafka cluster. A request to one that does not answer fails after half a minute."""
FORGOTTEN_SECONDS = 600.0
"""A topic that no shard asked about for so long is not read any more."""
TOGETHER = 50
"""Topics changed before the first of them is reported: it takes seconds."""


@dataclass(frozen=True, slots=True, eq=False)
class _Question:
    desired: DesiredTopic
    answer: asyncio.Future[TopicStatus]


class ClusterTopics:
    """One Kafka cluster as one user sees it; on one loop."""

    def __init__(self, services: Services, cluster: KafkaCluster) -> None:
        self._services = services
        self._cluster = cluster
        self._asked: dict[str, float] = {}
        self._judged_by: frozenset[str] = frozenset()
        self._questions: dict[str, _Question] = {}
        self._seen: ClusterSeen | None = None
        self._seen_at = float("-inf")
        self._looking: asyncio.Task[None] | None = None

    async def status(self, desired: DesiredTopic) -> TopicStatus | None:
        """How the topic is, after what it lacked was added; None where the cluster takes longer than PATIENCE_SECONDS:
        it is asked all the same, and the answer is there at one of the next calls."""
        self._asked[desired.name] = self._services.clock()
        self._judged_by |= desired.judged_by
        question = self._questions.get(desired.name)
        if question is None or question.desired != desired:
            if known := self._known(desired):
                return known
            question = _Question(desired, asyncio.get_running_loop().create_future())
            self._questions[desired.name] = question
        looking = self._looking
        if looking is None or looking.done():
            looking = self._looking = asyncio.create_task(self._look())
        both: set[asyncio.Future[Any]] = {question.answer, looking}
        await asyncio.wait(both, timeout=PATIENCE_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        if looking.done():
            looking.result()  # a lost lease above all
        if not question.answer.done():
            return None
        self._questions.pop(desired.name, None)
        return question.answer.result()

    def idle(self) -> bool:
        """Whether no shard has asked for long."""
        now = self._services.clock()
        return all(now - at >= FORGOTTEN_SECONDS for at in self._asked.values())

    def _known(self, desired: DesiredTopic) -> TopicStatus | None:
        """By what was observed last; None where that is too old, or the topic lacks something."""
        age = self._services.clock() - self._seen_at
        if self._seen is None or age >= LOOK_AGAIN_SECONDS or desired.name not in self._seen.configs:
            return None
        found = self._status(desired, self._seen)
        well = found.state == Reason.AS_SPECIFIED.value
        lacks = found.state == Reason.PROGRESSING.value
        return found if well or (not lacks and age < TROUBLE_LASTS_SECONDS) else None

    async def _look(self) -> None:
        """Until every question has its answer."""
        while asked := [question for question in self._questions.values() if not question.answer.done()][:TOGETHER]:
            found = await self._ask([question.desired for question in asked])
            for question in asked:
                question.answer.set_result(found[question.desired.name])

    async def _ask(self, desired: Sequence[DesiredTopic]) -> dict[str, TopicStatus]:
        found: dict[str, TopicStatus] = {}
        now = self._services.clock()
        self._asked = {name: at for name, at in self._asked.items() if now - at < FORGOTTEN_SECONDS}
        self._questions = {name: question for name, question in self._questions.items() if name in self._asked}
        whole = now - self._seen_at >= LOOK_AGAIN_SECONDS
        read = {topic.name for topic in desired}.union(self._asked if whole else ())

        async def ask() -> None:
            nonlocal found
            known = None if whole else self._seen
            found, seen = await asyncio.to_thread(self._repair, desired, sorted(read), known)
            if known is None or self._seen is None:
                self._seen, self._seen_at = seen, self._services.clock()
            else:  # settings of the other topics are as old as before
                self._seen = replace(seen, configs={**self._seen.configs, **seen.configs})

        try:
            await self._services.troubles.ask(f"kafka {self._cluster.bootstrap_servers}", ask)
        except Retryable as error:
            return {topic.name: self._failed(reason_of_silence(error), error) for topic in desired}
        except Permanent as error:
            return {topic.name: self._failed(Reason.TOPIC_FAILED, error) for topic in desired}
        return found

    def _repair(
        self, desired: Sequence[DesiredTopic], read: Sequence[str], known: ClusterSeen | None
    ) -> tuple[dict[str, TopicStatus], ClusterSeen]:
        """In a thread. Reads again after what it did, so that the status shows what is, not what was asked for. Nothing
        is done that was taken back while the cluster did not answer: partitions that are added stay."""
        seen = self._observe(read, known)
        steps, refused = plan_topics(desired, seen).steps, {}
        for step in steps:
            log.info("topic_step", cluster=self._cluster.name, topic=step.topic, step=_words(step))
        if steps and not self._services.dry_run:
            by_name = {topic.name: topic for topic in desired}
            due = (step for step in steps if self._still_desired(by_name[step.topic]))  # when it is taken
            refused = carry_out(self._cluster, due, self._services.fence)
            seen = self._observe(read, seen)
        failed = {topic: self._failed(Reason.TOPIC_FAILED, error) for topic, error in refused.items()}
        return {topic.name: failed.get(topic.name) or self._read(topic, seen) for topic in desired}, seen

    def _observe(self, topics: Sequence[str], known: ClusterSeen | None) -> ClusterSeen:
        """Without settings that no spec names: of each topic a broker has over thirty."""
        return observe_topics(self._cluster, topics, known, self._judged_by)

    def _still_desired(self, desired: DesiredTopic) -> bool:
        """Whether no shard has asked for something else of the topic since."""
        question = self._questions.get(desired.name)
        return question is None or question.desired == desired

    def _read(self, desired: DesiredTopic, seen: ClusterSeen) -> TopicStatus:
        if desired.name in seen.unread:
            try:
                seen = self._observe([desired.name], seen)
            except Permanent as error:
                return self._failed(Reason.TOPIC_FAILED, error)
        return self._status(desired, seen)

    def _status(self, desired: DesiredTopic, seen: ClusterSeen) -> TopicStatus:
        plan, count = plan_topics([desired], seen), len(seen.of_topic(desired.name))
        reason, message = Reason.AS_SPECIFIED, ""
        if plan.faults:
            compacted = any("compacted" in fault for fault in plan.faults)
            reason = Reason.TOPIC_COMPACTED if compacted else Reason.TOPIC_DRIFT
            message = "; ".join(plan.faults)[:2000]
        elif plan.steps:
            reason, message = Reason.PROGRESSING, f"{_words(plan.steps[0])} of {desired.name}"
        return TopicStatus(cluster=self._cluster.name, partitions=count, state=reason.value, message=message)

    def _failed(self, reason: Reason, error: Exception) -> TopicStatus:
        return TopicStatus(cluster=self._cluster.name, state=reason.value, message=str(error)[:2000])


def _words(step: TopicStep) -> str:
    return type(step).__name__
