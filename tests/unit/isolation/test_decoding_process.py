"""The real process with payloads that really end the decoder: ptars overflows its stack on deeply nested groups."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import pytest

from blockhouse.config.pipeline import MAX_ROWS
from blockhouse.errors import Retryable
from blockhouse.streams import StreamId
from blockhouse_aggregator.blocks.build import BlockBuilder, Sealed
from blockhouse_aggregator.isolation import process as module
from blockhouse_aggregator.isolation.careful import REASON, CarefulDecoder
from blockhouse_aggregator.isolation.process import DecodingProcess, Died
from blockhouse_aggregator.wire.formats import Format, MakeDecoder, decoder
from tests.format_messages import encode, history
from tests.type_cases import CASES
from tests.unit.blocks.test_replay_identity import job

DEADLY = b"\x1b" * 400_000
"""The beginnings of 400,000 groups, each within the one before it."""
TABLE = history({"n": "UInt32"})
REVISION = TABLE.revisions[0]
KEY = (Format.ROWS, TABLE, REVISION)
GOOD = encode("rows", TABLE, [{"n": 1}, {"n": 2}])


@pytest.fixture
def isolated() -> Iterator[DecodingProcess]:
    process = DecodingProcess()
    yield process
    process.close()


def test_the_deadly_message_kills_a_decoder() -> None:
    """What all of this is for: should ptars learn to refuse it, these tests need another one."""
    script = "import sys; from tests.unit.isolation.test_decoding_process import *; "
    script += "decoder(*KEY, None).decode([GOOD, DEADLY])"
    done = subprocess.run([sys.executable, "-c", script], check=False, capture_output=True)
    assert done.returncode == -signal.SIGSEGV, done.stderr


def build(sent: Sequence[tuple[int, bytes]], make: MakeDecoder) -> Sealed:
    builder = BlockBuilder(TABLE, REVISION, StreamId("a", "t", 3), make=make)
    for offset, payload in sent:
        builder.append(offset, payload, 1_700_000_000_000)
    return builder.seal(MAX_ROWS)


def test_a_block_without_the_deadly_message_is_the_block_of_its_neighbours(isolated: DecodingProcess) -> None:
    sent = [(offset, GOOD) for offset in range(40)]
    deadly = [(offset, DEADLY if offset == 17 else payload) for offset, payload in sent]
    found = build(deadly, partial(CarefulDecoder, isolated))
    expected = build([one for one in sent if one[0] != 17], decoder)
    assert found.block == expected.block
    assert [(dead.offset, dead.reason) for dead in found.dead] == [(17, REASON)]


def test_a_block_recorded_with_the_message_comes_out_different(isolated: DecodingProcess) -> None:
    """A replay of a block whose message has become deadly since (another version): I7 blocks it."""
    sent = [(offset, GOOD) for offset in range(10)]
    recorded = build(sent, decoder).block
    again = build([(o, DEADLY if o == 4 else p) for o, p in sent], partial(CarefulDecoder, isolated)).block
    assert recorded is not None
    assert again is not None
    assert (again.begin, again.end) == (recorded.begin, recorded.end)
    assert (again.messages, again.crc) != (recorded.messages, recorded.crc)
    assert again.messages == recorded.messages - 1


def test_every_type_in_every_format_makes_the_same_block(isolated: DecodingProcess) -> None:
    for case in CASES:
        table, revision, messages = job(case)
        blocks = []
        for make in (decoder, partial(CarefulDecoder, isolated)):
            builder = BlockBuilder(table, revision, StreamId("a", "t", 3), make=make)
            for offset, (form, payload) in enumerate(messages):
                builder.append(offset, payload, 1_700_000_000_000, Format(form))
            blocks.append(builder.seal(MAX_ROWS))
        assert blocks[0] == blocks[1], case.type


def test_the_worker_answers_for_the_server(isolated: DecodingProcess) -> None:
    table = history({"n": "UInt32", "twice": "UInt64 DEFAULT n * 2"})
    asked = []

    def evaluate(select: str, body: bytes) -> Sequence[Any]:
        asked.append(select)
        return [14]

    key = (Format.ROWS, table, table.revisions[0])
    sent = [encode("rows", table, [{"n": 7}])]
    found = isolated.decode(key, evaluate, sent, [1])
    assert asked
    assert found.columns["twice"].to_pylist() == decoder(*key, evaluate).decode(sent, [1]).columns["twice"].to_pylist()

    def unreachable(select: str, body: bytes) -> Sequence[Any]:
        raise Retryable("the replica is down", after=3.0)

    with pytest.raises(Retryable, match="the replica is down") as caught:
        isolated.decode(key, unreachable, sent, [1])
    assert caught.value.after == 3.0

    def no_answer(select: str, body: bytes) -> Sequence[Any]:
        raise ValueError("division by zero")

    assert [bad.reason for bad in isolated.decode(key, no_answer, sent, [1]).bad] == ["DefaultFailed"]


def test_it_continues_in_a_new_process_after_a_death(isolated: DecodingProcess) -> None:
    for _ in range(2):
        with pytest.raises(Died, match=f"signal {int(signal.SIGSEGV)}"):
            isolated.decode(KEY, None, [DEADLY], [1])
        assert isolated.decode(KEY, None, [GOOD], [1]).rows_per_message.tolist() == [2]


def test_a_process_that_does_not_start_condemns_no_message(
    isolated: DecodingProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MODULE", "no_such_module")
    with pytest.raises(Retryable, match="does not start: exit status 1"):
        isolated.decode(KEY, None, [DEADLY], [1])


def test_nothing_is_left_of_it(isolated: DecodingProcess) -> None:
    isolated.decode(KEY, None, [GOOD], [1])
    assert isolated._process is not None
    pid = isolated._process.pid
    isolated.close()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
