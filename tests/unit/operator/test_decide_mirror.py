"""What a mirror's status and conditions are, of what was seen; and which of two mirrors has a group."""

from __future__ import annotations

from typing import Any

import pytest

from blockhouse.contract.mirror import OffendingPartition
from blockhouse_operator.api.conditions import Condition, ConditionType, find
from blockhouse_operator.api.mirror import KafkaMirrorStatus
from blockhouse_operator.decide.mirror import LONGEST, MirrorSeen, coarse, describe_mirror
from blockhouse_operator.decide.mirror_claims import MirrorClaimant, mirror_conflict
from blockhouse_operator.decide.seen import PodSeen
from blockhouse_operator.decide.transitions import transitions
from blockhouse_operator.decide.words import shown_rate
from blockhouse_operator.desired import settings
from tests.unit.operator.mirrors import mirror, page, partition

READY_POD, NEW_POD = PodSeen(ready=True), PodSeen(ready=False)
STOPPED = partition(1, holder="", stopped="RetentionOvertook", message="gone")
WAITING = partition(2, holder="", waits="its task is gone")
HEAVY = OffendingPartition(topic="t", partition=0, bytes_per_second=2e7, share=1.5, advice="more partitions")


def described(*changes: tuple[str, Any], **seen: Any) -> tuple[KafkaMirrorStatus, tuple[Condition, ...]]:
    content = {"pod": READY_POD, "answer": page(partition())} | seen
    described = mirror(*changes)
    return describe_mirror(described.spec, MirrorSeen(**content), settings.mirror(described))


def state(conditions: tuple[Condition, ...], kind: ConditionType) -> tuple[str, str]:
    found = find(conditions, kind)
    return (found.status, found.reason) if found is not None else ("", "")


@pytest.mark.parametrize(
    ("seen", "phase", "ready", "mirroring"),
    [
        ({}, "Mirroring", ("True", "AllMirrored"), ("True", "AllMirrored")),
        ({"pod": None, "answer": None}, "Pending", ("False", "PodsNotReady"), ("Unknown", "PodsNotReady")),
        (
            {"pod": PodSeen(ready=False, trouble="mirror: ImagePullBackOff"), "answer": None},
            "Pending",
            ("False", "PodsNotReady"),
            ("Unknown", "PodsNotReady"),
        ),
        ({"pod": NEW_POD, "answer": None}, "Starting", ("False", "Starting"), ("Unknown", "PodsNotReady")),
        ({"pod": NEW_POD, "answer": page()}, "Starting", ("False", "Starting"), ("Unknown", "Starting")),
        ({"answer": None}, "Starting", ("Unknown", "MirrorUnreachable"), ("Unknown", "MirrorUnreachable")),
        ({"answer": page()}, "Mirroring", ("True", "AllMirrored"), ("Unknown", "Starting")),
        (
            {"answer": page(partition(), STOPPED)},
            "Degraded",
            ("False", "PartitionsStopped"),
            ("False", "PartitionsStopped"),
        ),
        ({"answer": page(partition(), WAITING)}, "Mirroring", ("True", "AllMirrored"), ("False", "Waiting")),
        ({"answer": page(WAITING)}, "Degraded", ("False", "Waiting"), ("False", "Waiting")),
        (
            {"answer": page(partition(), errors={"positions": "refused"})},
            "Degraded",
            ("False", "MirrorFailing"),
            ("True", "AllMirrored"),
        ),
        ({"settled": False}, "Mirroring", ("False", "Progressing"), ("True", "AllMirrored")),
        ({"missing": ("Secret s does not exist",)}, "Mirroring", ("True", "AllMirrored"), ("True", "AllMirrored")),
        (
            {"missing": ("Secret s does not exist",), "pod": None, "answer": None},
            "Stalled",
            ("False", "SecretMissing"),
            ("Unknown", "PodsNotReady"),
        ),
    ],
)
def test_what_a_mirror_is(seen: dict[str, Any], phase: str, ready: tuple[str, str], mirroring: tuple[str, str]) -> None:
    status, conditions = described(**seen)

    assert status.phase == phase
    assert state(conditions, ConditionType.READY) == ready
    assert state(conditions, ConditionType.MIRRORING) == mirroring


def test_what_only_a_person_can_change_is_stalled() -> None:
    for seen, reason in (
        ({"missing": ("Secret s does not exist",)}, "SecretMissing"),
        ({"taken": ("Service east-mirror belongs to X",)}, "NameTaken"),
        ({"refused": ("Deployment cannot be written",)}, "Forbidden"),
        ({"conflict": "group km-east belongs to b/east"}, "ClaimConflict"),
    ):
        _, conditions = described(**seen)
        assert state(conditions, ConditionType.STALLED) == ("True", reason)
        assert state(conditions, ConditionType.RECONCILING) == ("", "")
    assert state(described()[1], ConditionType.STALLED) == ("", "")


def test_a_suspended_mirror_reports_nothing_of_a_driver() -> None:
    status, conditions = described(("spec.suspend", True), pod=None, answer=None)

    assert (status.phase, status.partitions.total) == ("Suspended", 0)
    assert {each.type for each in conditions} == {"Ready", "Suspended"}
    assert state(conditions, ConditionType.READY) == ("False", "Suspended")


def test_the_figures_are_counted_and_rounded() -> None:
    partitions = (
        partition(0, bytes_per_second=12_660_000.0, lag_seconds=43.0),
        partition(3, bytes_per_second=40_000.0),
        partition(1, holder="", stopped="RetentionOvertook", message="gone", lag_seconds=9999.0),
        WAITING,
    )
    status, _ = described(answer=page(*partitions, capped_by="Slots", offending=(HEAVY,)))

    assert (status.tasks.assigned, status.tasks.running, status.tasks.capped_by) == (1, 1, "Slots")
    counts = status.partitions
    assert (counts.total, counts.held, counts.waiting, counts.stopped) == (4, 2, 1, 1)
    assert (status.rate, status.lag) == ("13 MB/s", "40s"), "the lag of a stopped one is not counted"
    assert [(each.partition, each.reason) for each in status.stopped] == [(1, "RetentionOvertook")]
    assert [(each.rate, each.share, each.advice) for each in status.offending] == [
        ("20 MB/s", "150%", "more partitions")
    ]


def test_events_warn_of_what_is_bad_and_of_nothing_that_passes_by_itself() -> None:
    _, well = described()
    _, heavy = described(answer=page(partition(), offending=(HEAVY,)))
    _, waiting = described(answer=page(partition(), WAITING))
    _, stopped = described(answer=page(partition(), STOPPED))

    def warned(before: tuple[Condition, ...], after: tuple[Condition, ...]) -> dict[str, bool]:
        return {change.reason: change.warning for change in transitions(before, after)}

    assert warned(well, heavy) == {"PartitionTooHeavy": True}
    assert warned(heavy, well) == {"NoneOffending": False}
    assert warned(well, waiting) == {"Waiting": False}
    assert warned(well, stopped) == {"PartitionsStopped": True}
    assert warned(well, well) == {}


def test_a_status_of_many_partitions_stays_small() -> None:
    many = [partition(number, holder="", stopped="RetentionOvertook", message="x" * 5000) for number in range(5000)]
    status, conditions = described(answer=page(*many, offending=(HEAVY,) * 500))

    assert (len(status.stopped), len(status.offending)) == (10, 10)
    assert all(len(each.message) <= LONGEST for each in (*conditions, *status.stopped))
    assert len(status.model_dump_json()) < 10_000


@pytest.mark.parametrize(
    ("more", "kind", "expected"),
    [
        ({}, ConditionType.TOPICS_IN_SYNC, ("True", "AsSpecified")),
        ({"errors": {"events": "refused"}}, ConditionType.TOPICS_IN_SYNC, ("False", "TopicFailed")),
        ({"errors": {"load": "no right"}}, ConditionType.TOPICS_IN_SYNC, ("True", "AsSpecified")),
        ({}, ConditionType.LOAD_KNOWN, ("True", "LoadMeasured")),
        ({"load_age_seconds": None}, ConditionType.LOAD_KNOWN, ("Unknown", "LoadNotMeasured")),
        ({"load_age_seconds": 301.0}, ConditionType.LOAD_KNOWN, ("False", "LoadNotMeasured")),
        (
            {"load_age_seconds": None, "errors": {"load": "no right"}},
            ConditionType.LOAD_KNOWN,
            ("False", "LoadNotMeasured"),
        ),
        ({"quality": 1.104}, ConditionType.BALANCED, ("True", "TasksEven")),
        ({"quality": 1.2}, ConditionType.BALANCED, ("False", "TasksUneven")),
        ({"quality": 1.2, "offending": (HEAVY,)}, ConditionType.BALANCED, ("False", "PartitionTooHeavy")),
        ({}, ConditionType.WITHIN_LATENCY, ("True", "InTime")),
        ({}, ConditionType.OFFENDING, ("False", "NoneOffending")),
        ({"offending": (HEAVY,)}, ConditionType.OFFENDING, ("True", "PartitionTooHeavy")),
    ],
)
def test_the_other_conditions(more: dict[str, Any], kind: ConditionType, expected: tuple[str, str]) -> None:
    _, conditions = described(answer=page(partition(), **more))

    assert state(conditions, kind) == expected
    assert state(conditions, ConditionType.READY) == ("True", "AllMirrored"), "nothing waits for these"


def test_a_late_partition_is_a_warning_unless_it_stands_still_anyway() -> None:
    _, well = described(answer=page(partition(), partition(1, stopped="RecordRefused", lag_seconds=1e6)))
    _, late = described(answer=page(partition(lag_seconds=61.0)))

    assert state(well, ConditionType.WITHIN_LATENCY) == ("True", "InTime")
    assert state(late, ConditionType.WITHIN_LATENCY) == ("False", "Late")


def test_letters_are_a_warning_and_keep_nothing_from_being_ready() -> None:
    _, well = described()
    _, warns = described(answer=page(partition(), partition(1, dead_letters=3)))

    assert state(well, ConditionType.DEAD_LETTERS) == ("False", "NoneRefused")
    assert state(warns, ConditionType.DEAD_LETTERS) == ("True", "RecordsRefused")
    assert state(warns, ConditionType.READY) == ("True", "AllMirrored")
    assert {change.reason: change.warning for change in transitions(well, warns)} == {"RecordsRefused": True}


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0s"),
        (4.9, "0s"),
        (12.0, "10s"),
        (54.9, "50s"),
        (58.0, "1m"),
        (431.0, "7m"),
        (3599.0, "1h"),
        (9000.0, "2h"),
    ],
)
def test_a_lag_is_shown_in_steps(seconds: float, text: str) -> None:
    assert coarse(seconds) == text


@pytest.mark.parametrize(
    ("rate", "text"),
    [
        (0.0, "0 B/s"),
        (9.96, "10 B/s"),
        (999.0, "1000 B/s"),
        (1234.0, "1.2 kB/s"),
        (12_660_000.0, "13 MB/s"),
        (126_600_000.0, "130 MB/s"),
        (5e12, "5000 GB/s"),
    ],
)
def test_a_rate_is_shown_with_two_digits(rate: float, text: str) -> None:
    assert shown_rate(rate) == text


def claimant(created: str, namespace: str, *changes: tuple[str, Any]) -> MirrorClaimant:
    given = (("metadata.namespace", namespace), ("metadata.uid", f"of-{namespace}"), *changes)
    found = mirror(*((path, value) for path, value in given if not path.startswith("metadata.namespace")))
    return MirrorClaimant(type(found)(**{**_fields(found), "namespace": namespace}), created)


def _fields(found: Any) -> dict[str, Any]:
    return {name: getattr(found, name) for name in found.__dataclass_fields__}


def test_of_two_mirrors_with_one_group_the_older_has_it() -> None:
    old, new = claimant("2026-01-01T00:00:00Z", "a"), claimant("2026-01-02T00:00:00Z", "b")

    assert "km-east" in mirror_conflict(new, [old, new])
    assert "KafkaMirror a/east" in mirror_conflict(new, [old, new])
    assert mirror_conflict(old, [old, new]) == ""


@pytest.mark.parametrize("change", [("metadata.name", "west"), ("spec.target.bootstrapServers", "elsewhere:9092")])
def test_another_name_or_another_target_is_no_conflict(change: tuple[str, Any]) -> None:
    old = claimant("2026-01-01T00:00:00Z", "a")

    assert mirror_conflict(claimant("2026-01-02T00:00:00Z", "b", change), [old]) == ""
