"""Which part may be abandoned: the whole decision, without a server."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from blockhouse_aggregator.clickhouse.quorum_nodes import PartName, parse_entry
from blockhouse_aggregator.clickhouse.stuck import (
    Abandon,
    Cause,
    Finding,
    PendingPart,
    QuorumState,
    ReplicaState,
    RestartReplica,
    StartFetches,
    diagnose,
)
from blockhouse_aggregator.coordination.znodes import Znode

PART = "all_4_4_0"
NOW, PATIENCE = 1_000_000_000, 30.0
PENDING = PendingPart(PART, "/t/quorum/status", 0, NOW - 60_000, 2, frozenset({"r1"}), ("/t/blocks/all_1_2",))
THIS = frozenset({PART})


def replica(
    name: str, *, active: bool = True, holds: bool = False, queued: bool = False, unread: bool = False
) -> ReplicaState:
    sets = {key: THIS if value else frozenset() for key, value in
            {"holds": holds, "queued": queued, "unread": unread}.items()}  # fmt: skip
    return ReplicaState(name, active, f"/t/replicas/{name}/host", 1, ("127.0.0.1", 9000), **sets)


def found(*replicas: ReplicaState, part: PendingPart = PENDING) -> Finding:
    (finding,) = diagnose(QuorumState("/t", 0, (part,), replicas), NOW, PATIENCE)
    return finding


def test_a_part_within_the_quorum_time_is_no_fault() -> None:
    finding = found(replica("r1", holds=True), replica("r2"), part=replace(PENDING, since_ms=NOW - 5_000))
    assert (finding.cause, finding.remedy, finding.stuck) == (Cause.IN_PROGRESS, None, False)


def test_a_part_that_an_active_replica_holds_is_never_abandoned() -> None:
    finding = found(replica("r1", holds=True), replica("r2", queued=True))
    assert (finding.cause, finding.remedy) == (Cause.NOT_FETCHED, None)
    assert "r2 does not fetch it" in finding.text


def test_with_too_few_active_replicas_the_others_must_be_started() -> None:
    finding = found(replica("r1", holds=True), replica("r2", active=False, queued=True))
    assert (finding.cause, finding.remedy) == (Cause.TOO_FEW_REPLICAS, None)


def test_a_part_whose_writer_is_unavailable_is_abandoned_by_those_who_ask_for_it() -> None:
    finding = found(replica("r1", active=False, holds=True), replica("r2", queued=True), replica("r3", queued=True))
    assert (finding.cause, finding.remedy) == (Cause.WRITER_LOST, StartFetches(("r2", "r3")))


@pytest.mark.parametrize("asks", ["queued", "unread"])
def test_a_part_that_an_absent_replica_will_ask_for_is_not_abandoned(asks: str) -> None:
    finding = found(replica("r1", active=False, holds=True), replica("r2", active=False, **{asks: True}))
    assert (finding.cause, finding.remedy) == (Cause.WRITER_LOST, None)


def test_a_part_that_no_replica_has_and_none_asks_for_is_abandoned() -> None:
    finding = found(replica("r1"), replica("r2"))
    assert (finding.cause, finding.remedy) == (Cause.ORPHANED, Abandon())


def test_a_quorum_that_is_met_but_not_recorded_is_reported_by_restarting_its_silent_holder() -> None:
    finding = found(replica("r1", holds=True), replica("r2", holds=True))
    assert (finding.cause, finding.remedy) == (Cause.QUORUM_MET, RestartReplica("r2"))


def test_a_quorum_met_by_an_absent_replica_waits_for_its_return() -> None:
    finding = found(replica("r1", holds=True), replica("r2", active=False, holds=True))
    assert (finding.cause, finding.remedy) == (Cause.QUORUM_MET, None)


def test_whatever_the_replicas_are_nothing_held_or_asked_for_is_abandoned() -> None:
    """Every combination of two replicas."""
    flags = list(itertools.product([True, False], repeat=4))
    for first, second in itertools.product(flags, repeat=2):
        replicas = [replica(n, active=f[0], holds=f[1], queued=f[2], unread=f[3])
                    for n, f in (("r1", first), ("r2", second))]  # fmt: skip
        finding = found(*replicas)
        held_by_active = any(r.active and r.holds for r in replicas)
        asked_for = any(r.queued or r.unread for r in replicas)
        if isinstance(finding.remedy, Abandon):
            assert not held_by_active
            assert not asked_for
        if isinstance(finding.remedy, StartFetches):
            assert not held_by_active


@pytest.mark.parametrize(
    ("covering", "part", "covers"),
    [
        ("all_0_9_2", "all_4_4_0", True),
        ("all_4_4_0", "all_4_4_0", True),
        ("all_4_4_0_7", "all_4_4_0", True),
        ("all_5_9_2", "all_4_4_0", False),
        ("201811_0_9_2", "all_4_4_0", False),
        ("201811_0_9_2", "201811_4_4_0", True),
    ],
)
def test_a_merged_part_covers_those_it_was_merged_from(covering: str, part: str, covers: bool) -> None:
    one, other = PartName.parse(covering), PartName.parse(part)
    assert one is not None
    assert other is not None
    assert one.covers(other) is covers


def test_an_entry_is_read_as_servers_write_it() -> None:
    text = (
        b"version: 1\npart_name: all_1_1_0\nrequired_number_of_replicas: 2\n"
        b"actual_number_of_replicas: 1\nreplicas:\nr1\n"
    )
    entry = parse_entry("/t/quorum/status", Znode(text, 3, 1234, 0))
    assert (entry.name, entry.required, entry.listed, entry.version) == ("all_1_1_0", 2, frozenset({"r1"}), 3)


def test_a_part_that_a_replica_cannot_fetch_for_want_of_a_column_names_both_and_the_statement() -> None:
    finding = found(replica("r1", holds=True), replace(replica("r2", queued=True), lacks=("extra", "more")))
    assert (finding.cause, finding.remedy) == (Cause.COLUMN_MISSING, None)
    assert "replica r2 lacks columns extra, more" in finding.text
    assert "ADD COLUMN" in finding.text
