"""A block rebuilt elsewhere and later is the same block, for every type in every format.

Another process with another hash seed, other portions, a catalog that has learnt of a new column meanwhile: none of it
may show. (What a replay does when a block differs all the same is the protocol's: `test_protocol_takeover.py`.)
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys

from blockhouse.config.pipeline import MAX_ROWS
from blockhouse.schema.history import extend
from blockhouse.schema.model import Revision, ServerColumn, TableHistory
from blockhouse.streams import StreamId
from blockhouse_aggregator.blocks.build import BlockBuilder
from blockhouse_aggregator.wire.formats import Format
from tests.format_messages import FORMATS, encode, history, nucolumnar_message
from tests.type_cases import CASES
from tests.type_values import ABSENT, SKIP, Case

Job = tuple[TableHistory, Revision, list[tuple[str, bytes]]]
"""A table as it is known, the block's revision, and the messages with their formats."""


def job(case: Case) -> Job:
    """Every good and bad value of the type in every format, and messages without the column."""
    table = history({"x": case.type, "n": "UInt32"})
    messages = []
    for form in FORMATS:
        number = {"int_value": 1} if form == "nucolumnar" else 1
        values = [getattr(value, form) for value in (*case.good, *case.bad)]
        for value in [*(value for value in values if value is not SKIP), ABSENT]:
            row = {"n": number} if value is ABSENT else {"n": number, "x": value}
            messages.append((form, encode(form, table, [row, row])))
    implicit = nucolumnar_message([{"x": {"null_value": 0}, "n": {"int_value": 2}}], sql="INSERT INTO t VALUES (?, ?)")
    return table, table.revisions[0], [*messages, ("nucolumnar", implicit)]


def build(work: Job, portion: int) -> tuple[int, int, bytes, tuple[int, ...]]:
    table, revision, messages = work
    builder = BlockBuilder(table, revision, StreamId("a", "t", 3))
    for offset, (form, payload) in enumerate(messages):
        builder.append(offset, payload, 1_700_000_000_000, Format(form))
        if offset % portion == 0:
            builder.decode()
    sealed = builder.seal(MAX_ROWS)
    assert sealed.block is not None
    return sealed.block.crc, sealed.block.messages, sealed.block.body, tuple(dead.offset for dead in sealed.dead)


def with_a_new_column(work: Job) -> Job:
    """The same block, after a person has added a column in front of all others."""
    table, revision, messages = work
    server = [ServerColumn(**column.model_dump(exclude={"field"})) for column in revision.columns]
    later = extend(table, [ServerColumn(name="new", type="String"), *server])
    assert later.current is not None
    assert later.current.number == 2
    return later, revision, messages


def test_a_block_rebuilt_in_another_process_is_the_same_bytes() -> None:
    jobs = [job(case) for case in CASES]
    blocks = [build(work, portion=5) for work in jobs]
    script = "import pickle, sys; from tests.unit.blocks.test_replay_identity import build; "
    script += "sys.stdout.buffer.write(pickle.dumps([build(w, 3) for w in pickle.load(sys.stdin.buffer)]))"
    environment = {**os.environ, "PYTHONHASHSEED": "7", "TZ": "Asia/Kathmandu"}
    done = subprocess.run(
        [sys.executable, "-c", script], input=pickle.dumps(jobs), capture_output=True, check=True, env=environment
    )
    assert pickle.loads(done.stdout) == blocks


def test_a_block_of_an_older_revision_is_the_same_after_a_column_was_added() -> None:
    for case in CASES:
        work = job(case)
        assert build(with_a_new_column(work), portion=4) == build(work, portion=100), case.type


def test_at_the_new_revision_an_implicit_statement_still_means_the_old_columns() -> None:
    # given rows of two values, of a producer that has never heard of the column in front
    later, _, _ = with_a_new_column(job(CASES[0]))
    assert later.current is not None
    row = {"x": {"int_value": 5}, "n": {"int_value": 2}}
    implicit, explicit = nucolumnar_message([row], sql="INSERT INTO t VALUES (?, ?)"), nucolumnar_message([row])
    # then they are stored as if it had named them
    assert build((later, later.current, [("nucolumnar", implicit)]), 1) == build(
        (later, later.current, [("nucolumnar", explicit)]), 1
    )
