"""Blocked blocks: when they are tried again, and which decisions of an operator are carried out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

from blockhouse.errors import Retryable
from blockhouse.metadata.model import InFlight, Metadata, Window
from blockhouse.streams import StreamId
from blockhouse_aggregator.coordination.markers import Decision
from blockhouse_aggregator.protocol.events import Condemned, Event, Recut, Released, Stored
from blockhouse_aggregator.protocol.state import Block, Stage, StreamState, TableState
from blockhouse_aggregator.runtime.ports import TableCount
from blockhouse_aggregator.runtime.stream.outcomes import Absent, CannotTell, Partial, Provenance, Whole
from blockhouse_aggregator.runtime.stream.stalled_blocks import StalledBlocks

TABLE = 1
BLOCK = Block(InFlight(10, 19, 10, 1, 7, 0), Stage.BLOCKED, fresh=False, reason="ColumnsDiffer")
RECORDED = Metadata("r1", 1, 0, "T", -1, 30, Window(reference=30))
STATE = StreamState(
    replica="r1",
    epoch=1,
    topic_id="T",
    leader_epoch=-1,
    seq=1,
    position=30,
    window=Window(reference=20, sealed=10),
    window_opened_ms=0,
    tables=(TableState(TABLE, BLOCK),),
    recorded=RECORDED,
)


@dataclass
class Owner:
    """A stream's owner with one blocked block; `proof` is what the table shows about its absence."""

    state: StreamState | None = STATE
    decision: Decision | None = None
    proof: Provenance = field(default_factory=Absent)
    lifetime: float = 0.0
    version: int = 5
    unavailable: str = ""
    rebuildable: bool = True
    described: bool = True
    stream: StreamId = field(default_factory=lambda: StreamId("a", "t", 0))
    events: list[Event] = field(default_factory=list)
    alarms: list[str] = field(default_factory=list)
    consumed: int = 0
    flushed: int = 0
    replayed_now: list[int] = field(default_factory=list)
    in_its_range: int = BLOCK.intent.messages
    """Messages of the table in the log, from the block's begin to its end."""

    @property
    def report(self) -> Any:
        return SimpleNamespace(label="a/t/0", alarm=lambda alarm: self.alarms.append(alarm.reason))

    @property
    def context(self) -> Any:
        known = SimpleNamespace(
            version=self.version, unavailable=self.unavailable, history=SimpleNamespace(name="db.t")
        )
        return SimpleNamespace(
            catalog=SimpleNamespace(
                by_id=lambda _: known,
                name=lambda _: "db.t",
                why_not=lambda _: self.unavailable,
                can_rebuild=lambda _, revision: self.rebuildable,
            ),
            storing=SimpleNamespace(lifetime=self.lifetime, provenance=self._provenance),
            ports=SimpleNamespace(markers=self, group=self),
        )

    async def _provenance(self, block: object) -> Provenance:
        return self.proof

    async def survey(
        self, stream: StreamId, start: int, stop: int, ranges: Mapping[str, tuple[int, int]]
    ) -> Mapping[str, TableCount]:
        cursor = self.state.table(TABLE).cursor if self.state is not None else None
        last = cursor or STATE.position
        assert (start, stop, ranges) == (10, last, {"db.t": (10, last - 1)}), "up to what is pending"
        if self.in_its_range < 0:
            raise Retryable("no broker answers")
        return {"db.t": TableCount(inside=self.in_its_range)} if self.in_its_range else {}

    async def block_decision(self, stream: StreamId, table: str) -> Decision | None:
        return self.decision

    async def consume_block_decision(self, stream: StreamId, table: str, decision: Decision) -> None:
        self.consumed += 1
        self.decision = None

    def replay_now(self, table_id: int) -> None:
        self.replayed_now.append(table_id)

    def to_store(self, table_id: int, intent: InFlight, topic_id: str, *, fresh: bool) -> Any:
        return object() if self.described else None

    async def apply(self, event: Event) -> None:
        self.events.append(event)

    async def flush(self, *, close_window: bool = False) -> None:
        self.flushed += 1


def decided(action: str) -> Decision:
    return Decision(action=action, by="operator", at_ms=0)


def looking(owner: Owner) -> StalledBlocks:
    return StalledBlocks(owner, owner)  # type: ignore[arg-type]


async def test_a_block_that_waits_for_its_table_to_be_fixed_is_blocked_for_that_reason() -> None:
    state = replace(STATE, tables=(TableState(TABLE, replace(BLOCK, stage=Stage.REPLAY, reason="")),))
    owner = Owner(state, unavailable="UnknownTable")
    await looking(owner).look()
    assert owner.events == [], "it can be rebuilt, and the server will report what is wrong"
    owner.rebuildable = False
    await looking(owner).look()
    assert owner.events == [Condemned(TABLE, "UnknownTable")]
    owner.unavailable = ""  # not unavailable, or unavailable by a rollout, or not checked yet: that ends by itself
    await looking(owner).look()
    assert owner.events == [Condemned(TABLE, "UnknownTable")]


async def test_a_block_is_tried_again_when_its_table_has_changed_since_and_can_be_loaded() -> None:
    owner = Owner(unavailable="SchemaChange")
    blocks = looking(owner)
    await blocks.look()
    owner.version, owner.unavailable = 6, "SchemaChange"
    await blocks.look()
    assert owner.events == [], "the table is still unavailable"
    owner.version, owner.unavailable = 7, ""
    await blocks.look()
    assert owner.events == [Released(TABLE)]
    assert owner.replayed_now == [TABLE]
    await blocks.look()
    assert owner.events == [Released(TABLE)], "once for a change"


async def test_what_an_operator_decides_is_carried_out_recorded_and_then_forgotten() -> None:
    for action, event in (
        ("stored 10-19", Stored(TABLE, 10, 19)),
        ("abandoned 10-19", Stored(TABLE, 10, 19)),
        ("absent 10-19", Recut(TABLE, 10, 19)),
        ("recut 10-19", Recut(TABLE, 10, 19)),
    ):
        owner = Owner(decision=decided(action), lifetime=-1.0)
        await looking(owner).look()
        assert (owner.events, owner.flushed, owner.consumed) == ([event], 1, 1), action
        assert owner.alarms == ["BlockDecided"]


async def test_messages_that_were_dead_lettered_when_the_block_was_cut_are_pending_again_too() -> None:
    for in_the_log, dead in ((12, 2), (10, 0), (7, 0), (0, 0)):  # retention may have taken some
        owner = Owner(decision=decided("absent 10-19"), lifetime=-1.0, in_its_range=in_the_log)
        await looking(owner).look()
        assert owner.events == [Recut(TABLE, 10, 19, dead=dead)], in_the_log
    lags = replace(STATE, tables=(TableState(TABLE, BLOCK, cursor=25, pending=2),))
    owner = Owner(lags, decision=decided("absent 10-19"), lifetime=-1.0, in_its_range=11)
    await looking(owner).look()
    assert owner.events == [Recut(TABLE, 10, 19, dead=1)]
    waits = Owner(decision=decided("absent 10-19"), lifetime=-1.0, in_its_range=-1)
    await looking(waits).look()
    assert (waits.events, waits.alarms, waits.consumed) == ([], [], 0), "until the log answers"


async def test_a_decision_about_another_block_changes_nothing() -> None:
    for action in ("stored 10-18", "recut 0-19", "accept OffsetsReset", "stored"):
        owner = Owner(decision=decided(action), lifetime=-1.0)
        await looking(owner).look()
        assert (owner.events, owner.consumed) == ([], 0), action


async def test_nothing_is_cut_again_while_an_earlier_insert_may_still_run() -> None:
    owner = Owner(decision=decided("absent 10-19"), lifetime=60.0)
    await looking(owner).look()
    assert (owner.events, owner.consumed) == ([], 0)


async def test_a_recut_is_refused_when_rows_are_stored_and_waits_while_it_cannot_be_known() -> None:
    for found in (Partial(messages=3, expected=10, rows=3), Whole(), CannotTell("no such columns", after=None)):
        owner = Owner(decision=decided("recut 10-19"), lifetime=-1.0, proof=found)
        await looking(owner).look()
        assert (owner.events, owner.alarms, owner.consumed) == ([], ["RecutRefused"], 1), found
    owner = Owner(decision=decided("recut 10-19"), lifetime=-1.0, proof=CannotTell("a quorum is pending", after=1.0))
    await looking(owner).look()
    assert (owner.events, owner.alarms, owner.consumed) == ([], [], 0)


async def test_a_recut_of_a_table_that_was_not_found_is_refused_only_when_the_server_was_asked() -> None:
    owner = Owner(decision=decided("recut 10-19"), lifetime=-1.0, described=False, unavailable="UnknownTable")
    await looking(owner).look()
    assert (owner.events, owner.alarms, owner.consumed) == ([], ["RecutRefused"], 1)
    owner = Owner(decision=decided("recut 10-19"), lifetime=-1.0, described=False)
    await looking(owner).look()
    assert (owner.events, owner.alarms, owner.consumed) == ([], [], 0)


async def test_a_decision_stays_until_the_broker_holds_what_came_of_it() -> None:
    state = replace(STATE, recorded=None)
    owner = Owner(state=state, decision=decided("stored 10-19"), lifetime=-1.0)
    await looking(owner).look()
    assert (owner.events, owner.consumed) == ([Stored(TABLE, 10, 19)], 0)


async def test_blocks_that_are_not_blocked_are_left_alone() -> None:
    replaying = replace(STATE, tables=(TableState(TABLE, replace(BLOCK, stage=Stage.REPLAY)),))
    owner = Owner(state=replaying, decision=decided("stored 10-19"), lifetime=-1.0)
    await looking(owner).look()
    assert owner.events == []
