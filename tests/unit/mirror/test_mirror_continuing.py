"""Where a task continues behind what its predecessor wrote, and from which records it knows that."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from blockhouse_mirror.gate.messages import Assigned
from blockhouse_mirror.protocol.progress import Progress
from blockhouse_mirror.protocol.provenance import Origin
from blockhouse_mirror.work.tail import Tail
from blockhouse_mirror.work.task import _Lease

ASSIGNED = Assigned(
    topic="t",
    partition=3,
    generation=1,
    offset=50,
    epoch=7,
    tail=40,
    topic_id="t-id",
    target_topic="t",
    tail_cut=False,
    careful_until=-1,
)


def continued(tail: Tail | None, assigned: Assigned = ASSIGNED) -> Progress:
    task: Any = SimpleNamespace(_welcome=SimpleNamespace(source_cluster="S"))
    return _Lease._continued(task, assigned, tail)


def origin(offset: int, cluster: str = "S", topic_id: str = "t-id", partition: int = 3) -> Origin:
    return Origin(cluster, topic_id, partition, offset, offset)


def test_it_continues_behind_what_the_tail_holds() -> None:
    progress = continued(Tail(43, [origin(50), origin(51), origin(52)]))

    assert (progress.position, progress.after, progress.tail, progress.epoch) == (53, 53, 43, -1)


def test_with_nothing_in_the_tail_it_continues_where_the_position_is_in_its_epoch() -> None:
    progress = continued(Tail(40))

    assert (progress.position, progress.tail, progress.epoch) == (50, 40, 7)


def test_records_of_other_sources_are_no_part_of_the_tail() -> None:
    others = [origin(50, cluster="R"), origin(50, topic_id="older"), origin(50, partition=4)]

    progress = continued(Tail(43, others))

    assert (progress.position, progress.tail) == (50, 43)


def test_where_retention_cut_the_tail_its_first_record_is_believed() -> None:
    cut = ASSIGNED.model_copy(update={"tail_cut": True})

    assert continued(Tail(60, [origin(57)]), cut).position == 58
    assert continued(Tail(60, [origin(57)])).position == 50


def test_without_a_tail_it_continues_at_the_position() -> None:
    progress = continued(None)

    assert (progress.position, progress.tail) == (50, 40)
