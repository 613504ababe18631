"""One table of code to class: what is resent, whose fault it is, and what can never succeed."""

from __future__ import annotations

import pytest

from blockhouse.errors import Permanent
from blockhouse_aggregator.clickhouse.errors import Fault, ServerFault, classify, interrupted, unreachable

WHERE = "clickhouse ch-1:9000, table db.clicks"


@pytest.mark.parametrize(
    ("code", "fault"),
    [
        (319, Fault.RESEND),
        (286, Fault.RESEND),
        (159, Fault.RESEND),
        (209, Fault.RESEND),
        (210, Fault.RESEND),
        (241, Fault.RESEND),
        (285, Fault.SHARD),
        (225, Fault.REPLICA),
        (242, Fault.REPLICA),
        (243, Fault.REPLICA),
        (516, Fault.REPLICA),
        (999, Fault.REPLICA),
    ],
)
def test_a_code_that_may_pass_is_retried_and_names_whose_fault_it_is(code: int, fault: Fault) -> None:
    error = classify(code, "DB::Exception: something. Stack trace: 0. clickhouse", WHERE)
    assert isinstance(error, ServerFault)
    assert (error.fault, error.code) == (fault, code)
    assert error.after > 0


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (60, "UnknownTable"),
        (10, "ColumnsDiffer"),
        (16, "ColumnsDiffer"),
        (47, "ColumnsDiffer"),
        (53, "TypeMismatch"),
        (70, "TypeMismatch"),
        (368, "TypeMismatch"),
        (164, "AccessDenied"),
        (497, "AccessDenied"),
        (469, "ConstraintViolated"),
    ],
)
def test_a_code_that_can_never_pass_is_permanent_with_its_reason(code: int, reason: str) -> None:
    error = classify(code, "no", WHERE)
    assert isinstance(error, Permanent)
    assert (error.reason, error.code) == (reason, code)


def test_too_many_parts_is_back_pressure() -> None:
    text = "DB::Exception: Too many parts (300). Merges are processing significantly slower than inserts."
    error = classify(252, text, WHERE)
    assert isinstance(error, ServerFault)
    assert error.after >= 1


def test_too_many_partitions_in_one_block_can_never_pass() -> None:
    text = "DB::Exception: Too many partitions for single INSERT block (more than 100)."
    error = classify(252, text, WHERE)
    assert isinstance(error, Permanent)
    assert error.reason == "TooManyPartitions"


def test_a_replica_that_has_restarted_and_is_not_active_yet_is_not_taken_for_a_user_who_may_not_write() -> None:
    error = classify(164, "DB::Exception: Replica is not active right now. Stack trace: 0. clickhouse", WHERE)
    assert isinstance(error, ServerFault)
    assert (error.fault, error.code) == (Fault.REPLICA, 164)


def test_an_unknown_code_is_retried_and_shown() -> None:
    error = classify(98765, "DB::Exception: new", WHERE)
    assert isinstance(error, ServerFault)
    assert "98765" in str(error)


def test_the_message_names_the_table_and_leaves_the_stack_trace_out() -> None:
    error = classify(60, "DB::Exception: Table db.clicks doesn't exist.. Stack trace:\n\n0. StackTrace()", WHERE)
    assert "db.clicks" in str(error)
    assert "StackTrace" not in str(error)


def test_a_replica_that_cannot_be_reached_is_at_fault_and_a_lost_connection_is_nobodys() -> None:
    assert unreachable(WHERE, "refused").fault is Fault.REPLICA
    assert interrupted(WHERE, "reset").fault is Fault.RESEND
