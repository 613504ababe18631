"""A mirror's status and conditions from what was seen of it. Pure and total."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from blockhouse.config.mirror import MirrorConfig
from blockhouse.config.units import duration_text
from blockhouse.contract.mirror import OWN_ERRORS, MirrorPartition, MirrorStatus
from blockhouse_operator.api import mirror as api
from blockhouse_operator.api.conditions import Condition, ConditionType, Reason, condition
from blockhouse_operator.api.mirror import WORST_PARTITIONS, KafkaMirrorSpec, KafkaMirrorStatus
from blockhouse_operator.decide.claims import dispute
from blockhouse_operator.decide.seen import PodSeen
from blockhouse_operator.decide.words import counted, shown_rate

LONGEST = 400
"""Characters of a message: the status of a mirror of thousands of partitions stays small."""
ROUNDING = 0.005
OLD_SAMPLE = 300.0
"""Seconds after which a sample of load is old, and three times its interval at least."""


@dataclass(frozen=True, slots=True)
class MirrorSeen:
    """A mirror at one moment. `answer` is its status page, None where it has none, and `silence` why."""

    pod: PodSeen | None = None
    settled: bool = True
    """Whether the Deployment has made its pod from its present template."""
    answer: MirrorStatus | None = None
    silence: str = ""
    conflict: str = ""
    undecided: str = ""  # why it is not known whether there is a conflict
    missing: tuple[str, ...] = ()
    taken: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()

    @property
    def dispute(self) -> tuple[Reason, str] | None:
        return dispute(self.conflict, self.undecided)

    @property
    def obstacle(self) -> tuple[Reason, str] | None:
        """What only a person can take out of the way."""
        if self.dispute is not None:
            return self.dispute
        for reason, texts in (
            (Reason.FORBIDDEN, self.refused),
            (Reason.NAME_TAKEN, self.taken),
            (Reason.SECRET_MISSING, self.missing),
        ):
            if texts:
                return reason, _cut("; ".join(texts[:5]))
        return None


def describe_mirror(
    spec: KafkaMirrorSpec, seen: MirrorSeen, config: MirrorConfig
) -> tuple[KafkaMirrorStatus, tuple[Condition, ...]]:
    """The status without conditions, and these. `config` is what the spec makes of the program's settings."""
    status = KafkaMirrorStatus(phase=phase_of(spec, seen))
    page = None if spec.suspend else seen.answer
    if page is not None:
        status = status.model_copy(update=_figures(page))
    found = [_ready(spec, seen), _reconciling(spec, seen), _stalled(seen)]
    if spec.suspend:
        found.append(condition(ConditionType.SUSPENDED, True, Reason.SUSPENDED, "spec.suspend is true"))
    else:
        found += [_mirroring(seen), _topics(page), _load(page, config.load.interval), _offending(page)]
        found += [_balanced(page, config.load.tolerance), _in_time(page, config.rebalance.on_lag), _dead_letters(page)]
    return status, tuple(each for each in found if each is not None)


def phase_of(spec: KafkaMirrorSpec, seen: MirrorSeen) -> str:
    """One word for people."""
    if spec.suspend and seen.dispute is None:
        return "Suspended"
    if seen.answer is not None and seen.pod is not None and seen.pod.ready:
        return "Degraded" if _unwell(seen.answer) else "Mirroring"
    if seen.obstacle is not None:
        return "Stalled"
    return "Pending" if seen.pod is None or seen.pod.trouble else "Starting"


def _figures(page: MirrorStatus) -> dict[str, object]:
    stopped = [each for each in page.partitions if each.stopped]
    late = max((each.lag_seconds for each in page.partitions if not each.stopped), default=0.0)
    heaviest = sorted(page.offending, key=lambda each: -each.bytes_per_second)[:WORST_PARTITIONS]
    return {
        "tasks": api.MirrorTasks(
            assigned=len(page.tasks), running=sum(task.running for task in page.tasks), capped_by=page.capped_by
        ),
        "partitions": api.MirrorPartitions(
            total=len(page.partitions),
            held=sum(bool(each.holder) and not each.stopped for each in page.partitions),
            waiting=sum(not each.holder and not each.stopped for each in page.partitions),
            stopped=len(stopped),
        ),
        "rate": shown_rate(sum(each.bytes_per_second for each in page.partitions)),
        "lag": coarse(late),
        "stopped": tuple(
            api.StoppedPartition(
                topic=each.topic, partition=each.partition, reason=each.stopped, message=_cut(each.message)
            )
            for each in stopped[:WORST_PARTITIONS]
        ),
        "offending": tuple(
            api.OffendingPartition(
                topic=each.topic,
                partition=each.partition,
                rate=shown_rate(each.bytes_per_second),
                share=f"{each.share:.0%}",
                advice=_cut(each.advice),
            )
            for each in heaviest
        ),
    }


def coarse(seconds: float) -> str:
    """A lag in steps, so that not each change of it is a write: `0s`, `40s`, `7m`, `3h`."""
    for unit, most in ((10, 60), (60, 3600)):
        if (rounded := unit * round(seconds / unit)) < most:
            return duration_text(rounded)
    return duration_text(3600 * round(seconds / 3600))


def _unwell(page: MirrorStatus) -> bool:
    return any(each.stopped for each in page.partitions) or bool(_own_errors(page)) or not _served(page)


def _own_errors(page: MirrorStatus) -> dict[str, str]:
    """What fails of the driver itself. Of load and its history it is no failure: nothing waits for them."""
    return {what: text for what, text in page.errors.items() if what in OWN_ERRORS - {"load", "history"}}


def _served(page: MirrorStatus) -> bool:
    """Whether a task has something, where there is something to have."""
    waiting = [each for each in page.partitions if not each.stopped]
    return not waiting or any(each.holder for each in waiting)


def _ready(spec: KafkaMirrorSpec, seen: MirrorSeen) -> Condition:
    kind, page = ConditionType.READY, seen.answer
    if seen.dispute is not None:
        return condition(kind, False, *seen.dispute)
    if spec.suspend:
        return condition(kind, False, Reason.SUSPENDED, "spec.suspend is true: nothing is mirrored")
    if (seen.pod is None or not seen.pod.ready) and seen.obstacle is not None:
        return condition(kind, False, *seen.obstacle)
    if not seen.settled:
        return condition(kind, False, Reason.PROGRESSING, "the pod is being replaced, to take a change")
    if seen.pod is None or seen.pod.trouble:
        why = seen.pod.trouble if seen.pod is not None else ""
        return condition(kind, False, Reason.PODS_NOT_READY, why or "there is no pod yet")
    if page is None and seen.pod.ready:
        return condition(kind, None, Reason.MIRROR_UNREACHABLE, seen.silence)
    if page is None or not seen.pod.ready:
        return condition(kind, False, Reason.STARTING, _beginning(seen))
    return _well(page)


def _well(page: MirrorStatus) -> Condition:
    """Ready of a mirror that answers."""
    kind = ConditionType.READY
    if stopped := [each for each in page.partitions if each.stopped]:
        return condition(kind, False, Reason.PARTITIONS_STOPPED, _about_stopped(stopped))
    if failing := _own_errors(page):
        what, text = next(iter(sorted(failing.items())))
        return condition(kind, False, Reason.MIRROR_FAILING, _cut(f"{what}: {text}"))
    if not _served(page):
        return condition(kind, False, Reason.WAITING, _about_waiting(page))
    partitions = counted(len(page.partitions), "partition", "partitions")
    return condition(kind, True, Reason.ALL_MIRRORED, f"{partitions} of {page.source} to {page.target}")


def _beginning(seen: MirrorSeen) -> str:
    errors = _own_errors(seen.answer) if seen.answer is not None else {}
    first = next((f"{what}: {text}" for what, text in sorted(errors.items())), "")
    return _cut(first or seen.silence or "the driver looks for topics")


def _reconciling(spec: KafkaMirrorSpec, seen: MirrorSeen) -> Condition | None:
    kind = ConditionType.RECONCILING
    if seen.obstacle is not None:
        return None
    if not seen.settled:
        return condition(kind, True, Reason.PROGRESSING, "the Deployment is being changed")
    if not spec.suspend and (seen.pod is None or not seen.pod.ready):
        return condition(kind, True, Reason.PROGRESSING, "the pod is not ready yet")
    return None


def _stalled(seen: MirrorSeen) -> Condition | None:
    return condition(ConditionType.STALLED, True, *seen.obstacle) if seen.obstacle is not None else None


def _mirroring(seen: MirrorSeen) -> Condition:
    kind, page = ConditionType.MIRRORING, seen.answer
    if page is None:
        alive = seen.pod is not None and seen.pod.ready
        reason = Reason.MIRROR_UNREACHABLE if alive else Reason.PODS_NOT_READY
        return condition(kind, None, reason, _cut(seen.silence))
    if stopped := [each for each in page.partitions if each.stopped]:
        return condition(kind, False, Reason.PARTITIONS_STOPPED, _about_stopped(stopped))
    if any(not each.holder for each in page.partitions):
        return condition(kind, False, Reason.WAITING, _about_waiting(page))
    if not page.partitions:
        return condition(kind, None, Reason.STARTING, "no topic matches spec.topics yet")
    return condition(kind, True, Reason.ALL_MIRRORED)


def _topics(page: MirrorStatus | None) -> Condition | None:
    if page is None:
        return None
    faults = {topic: text for topic, text in page.errors.items() if topic not in OWN_ERRORS}
    if not faults:
        return condition(ConditionType.TOPICS_IN_SYNC, True, Reason.AS_SPECIFIED)
    topic, text = next(iter(sorted(faults.items())))
    more = f" (and {counted(len(faults) - 1, 'more topic', 'more topics')})" if len(faults) > 1 else ""
    return condition(ConditionType.TOPICS_IN_SYNC, False, Reason.TOPIC_FAILED, _cut(f"{topic}: {text}") + more)


def _load(page: MirrorStatus | None, interval: float) -> Condition | None:
    if page is None:
        return None
    kind, failed, age = ConditionType.LOAD_KNOWN, page.errors.get("load", ""), page.load_age_seconds
    if age is not None and age <= max(OLD_SAMPLE, 3 * interval):
        return condition(kind, True, Reason.LOAD_MEASURED)
    if age is None and not failed:
        return condition(kind, None, Reason.LOAD_NOT_MEASURED, "nothing was measured yet")
    return condition(kind, False, Reason.LOAD_NOT_MEASURED, _cut(failed or "the newest sample is old"))


def _offending(page: MirrorStatus | None) -> Condition | None:
    if page is None:
        return None
    kind = ConditionType.OFFENDING
    if not page.offending:
        return condition(kind, False, Reason.NONE_OFFENDING)
    worst = max(page.offending, key=lambda each: each.bytes_per_second)
    words = f"{counted(len(page.offending), 'partition', 'partitions')}, first {worst.topic}/{worst.partition}"
    return condition(kind, True, Reason.PARTITION_TOO_HEAVY, _cut(f"{words}: {worst.advice}"))


def _balanced(page: MirrorStatus | None, tolerance: float) -> Condition | None:
    """Uneven tasks wait for the cool-down, for lag or for quiet hours; a partition that is too heavy makes them so for
    good."""
    if page is None or not page.tasks:
        return None
    kind = ConditionType.BALANCED
    if page.quality <= 1 + tolerance + ROUNDING:
        return condition(kind, True, Reason.TASKS_EVEN)
    return condition(kind, False, Reason.PARTITION_TOO_HEAVY if page.offending else Reason.TASKS_UNEVEN)


def _in_time(page: MirrorStatus | None, most: float) -> Condition | None:
    if page is None or not page.partitions:
        return None
    late = any(each.lag_seconds > most and not each.stopped for each in page.partitions)
    return condition(ConditionType.WITHIN_LATENCY, not late, Reason.LATE if late else Reason.IN_TIME)


def _dead_letters(page: MirrorStatus | None) -> Condition | None:
    """Without a count: the status would be written for each letter."""
    if page is None:
        return None
    kind = ConditionType.DEAD_LETTERS
    first = next((each for each in page.partitions if each.dead_letters), None)
    if first is None:
        return condition(kind, False, Reason.NONE_REFUSED)
    return condition(kind, True, Reason.RECORDS_REFUSED, _cut(f"of {first.topic}/{first.partition} first"))


def _about_stopped(stopped: list[MirrorPartition]) -> str:
    first = stopped[0]
    words = counted(len(stopped), "partition stands", "partitions stand")
    return _cut(f"{words} still, first {first.topic}/{first.partition}: {first.stopped}: {first.message}")


def _about_waiting(page: MirrorStatus) -> str:
    waiting = [each for each in page.partitions if not each.holder and not each.stopped]
    first = next(iter(_reasons(waiting)), "")
    return _cut(f"{len(waiting)} of {counted(len(page.partitions), 'partition waits', 'partitions wait')}{first}")


def _reasons(waiting: list[MirrorPartition]) -> Iterator[str]:
    for each in waiting:
        if each.waits:
            yield f", {each.topic}/{each.partition}: {each.waits}"


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 3]}..."
