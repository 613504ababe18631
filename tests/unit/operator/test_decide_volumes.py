"""What a volume claim is asked to be when the spec's size changes."""

from __future__ import annotations

import pytest

from blockhouse.fleet.topics import DesiredTopic, plan_topics
from blockhouse_operator.decide.volumes import claim_size
from tests.unit.fleet.test_topics import seen


def size(desired: str, asked: str, has: str | None) -> tuple[str, bool]:
    live = {
        "metadata": {"name": "data-r"},
        "spec": {"resources": {"requests": {"storage": asked}}},
        "status": {"capacity": {"storage": has}} if has else {},
    }
    found, why = claim_size(desired, live)
    return found, bool(why)


@pytest.mark.parametrize(
    ("desired", "asked", "has", "expected"),
    [
        ("2Gi", "1Gi", "1Gi", ("2Gi", False)),
        ("2Gi", "4Gi", "1Gi", ("2Gi", False)),
        ("1Gi", "4Gi", "1Gi", ("4Gi", False)),
        ("1Gi", "4Gi", "4Gi", ("4Gi", True)),
        ("1Gi", "4Gi", None, ("1Gi", False)),
        ("1Gi", "4Gi", "4G", ("1Gi", False)),
    ],
    ids=["grows", "taken-back-half", "taken-back", "has-grown", "not-bound-yet", "unit-unknown"],
)
def test_a_size_can_be_taken_back_until_the_volume_has_it(
    desired: str, asked: str, has: str | None, expected: tuple[str, bool]
) -> None:
    assert size(desired, asked, has) == expected


def test_partitions_that_are_more_than_in_the_spec_are_a_fault_and_stay() -> None:
    topic = DesiredTopic("t", 2, 1)
    plan = plan_topics([topic], seen({"t": [(1,), (2,), (3,)]}))

    assert plan.steps == ()
    assert "3 partitions and 2 are asked for" in plan.faults[0]
