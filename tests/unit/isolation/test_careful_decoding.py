"""Exactly the messages that end the process are condemned, and all others come out as they always do."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from blockhouse.errors import Retryable
from blockhouse_aggregator.isolation.careful import REASON, CarefulDecoder
from blockhouse_aggregator.isolation.process import Died, Key
from blockhouse_aggregator.wire.batch import DecodedBatch
from blockhouse_aggregator.wire.filling import Evaluate
from blockhouse_aggregator.wire.formats import Format, decoder
from tests.format_messages import encode, history

TABLE = history({"n": "UInt32", "text": "String"})
REVISION = TABLE.revisions[0]
BAD = b"\x0a\xff"


@dataclass
class Mortal:
    """Decodes here, and dies of any batch with one of the `deadly` messages; of `chance` the first time only."""

    deadly: frozenset[bytes] = frozenset()
    chance: set[bytes] = field(default_factory=set)
    of_nothing: bool = False
    deaths: int = 0

    def decode(
        self, key: Key, evaluate: Evaluate | None, payloads: Sequence[bytes], timestamps_ms: Sequence[int]
    ) -> DecodedBatch:
        form, table, revision = key
        found = self.deadly.union(self.chance).intersection(payloads)
        if found or (self.of_nothing and not payloads):
            if len(payloads) == 1:
                self.chance -= found
            self.deaths += 1
            raise Died("signal 11")
        return decoder(form, table, revision, evaluate).decode(payloads, timestamps_ms)


def messages(count: int) -> list[bytes]:
    some = [encode("rows", TABLE, [{"n": n, "text": b"row %d" % n}] * (n % 3)) for n in range(1, 40)]
    return [some[n % len(some)] for n in range(count)]


def test_exactly_the_deadly_messages_are_condemned() -> None:
    seed = random.randrange(1 << 32)
    print(f"SEED={seed}")
    chance = random.Random(seed)
    for _ in range(15):
        count = chance.randrange(1, 1500)
        sent = [BAD if chance.random() < 0.01 else message for message in messages(count)]
        guilty = sorted(chance.sample(range(count), min(count, chance.randrange(4))))
        for index in guilty:
            sent[index] = b"deadly %d" % index
        mortal = Mortal(frozenset(sent[index] for index in guilty))
        found = CarefulDecoder(mortal, Format.ROWS, TABLE, REVISION).decode(sent)
        without = [b"" if index in guilty else value for index, value in enumerate(sent)]
        expected = decoder(Format.ROWS, TABLE, REVISION, None).decode(without)
        condemned = [bad.index for bad in found.bad if bad.reason == REASON]
        assert condemned == guilty
        assert [bad for bad in found.bad if bad.reason != REASON] == list(expected.bad)
        assert found.rows_per_message.tolist() == expected.rows_per_message.tolist()
        assert {name: column.to_pylist() for name, column in found.columns.items()} == {
            name: column.to_pylist() for name, column in expected.columns.items()
        }
        assert mortal.deaths <= 5 * len(guilty), "every death costs the start of a process"


def test_a_message_that_is_alone_with_one_death_is_stored() -> None:
    sent = messages(50)
    sent[20] = encode("rows", TABLE, [{"n": 77}])
    mortal = Mortal(chance={sent[20]})
    found = CarefulDecoder(mortal, Format.ROWS, TABLE, REVISION).decode(sent)
    assert found.bad == ()
    assert mortal.deaths == 3, "in the batch, in its part, alone"


def test_only_deadly_messages_make_a_batch_without_rows() -> None:
    mortal = Mortal(frozenset({b"x", b"y"}))
    found = CarefulDecoder(mortal, Format.ROWS, TABLE, REVISION).decode([b"x", b"y", b"x"])
    assert [bad.index for bad in found.bad] == [0, 1, 2]
    assert found.rows_per_message.tolist() == [0, 0, 0]


def test_a_process_that_dies_of_nothing_condemns_no_message() -> None:
    mortal = Mortal(frozenset({b"x"}), of_nothing=True)
    with pytest.raises(Retryable, match="no message at all"):
        CarefulDecoder(mortal, Format.ROWS, TABLE, REVISION).decode([b"x"])
