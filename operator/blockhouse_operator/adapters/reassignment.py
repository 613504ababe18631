"""One Kafka cluster as a reassignment needs it, kept between reconciles: a throttle measures what changes over time.

Calls block; callers use threads. The fence is asked before every change: a leader that was frozen must not move
partitions or rates that another one decides about.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field

from blockhouse.config.endpoints import KafkaCluster
from blockhouse.errors import Permanent
from blockhouse.fleet.execution import Pace, startable
from blockhouse.fleet.frozen import FrozenPlan, Seen, Verdict, judge, next_target
from blockhouse.fleet.kafka_admin import KafkaFleet
from blockhouse.fleet.load.settings import LoadSettings
from blockhouse.fleet.load.sources import opened
from blockhouse.fleet.throttle_context import Context, Tally, ThrottleStore
from blockhouse.fleet.throttle_figures import ThrottleFigures
from blockhouse.fleet.throttling import Targets, Throttler
from blockhouse.placement.model import ReplicaSet, TopicPartition
from blockhouse.throttle.model import Event, Overrides, Settings
from blockhouse.throttle.report import Row
from blockhouse_operator.adapters.fence import Fence
from blockhouse_operator.decide.reassignment_plan import PlanInputs


@dataclass(frozen=True, slots=True)
class Throttling:
    """How a reassignment is throttled. `interval` is in seconds. The store is no part of what is compared."""

    settings: Settings
    overrides: Overrides
    interval: float
    store: ThrottleStore = field(compare=False)


class ReassignmentKafka:
    """Use from one thread at a time, and `close` it."""

    def __init__(self, cluster: KafkaCluster, load: LoadSettings, fence: Fence, clock: Callable[[], float]) -> None:
        self._open = ExitStack()
        self._fleet = self._open.enter_context(KafkaFleet(cluster))
        self._loads = self._open.enter_context(opened(load, cluster))
        self._fence = fence
        self._clock = clock
        self._throttler: Throttler | None = None
        self._throttling: Throttling | None = None
        self._plan_hash = ""
        self._due = 0.0
        self._foreseen: tuple[Row, ...] = ()
        self._events: list[Event] = []
        self._tally = Tally()

    def close(self) -> None:
        """Close the connections; it may not be used afterwards."""
        self._open.close()

    @property
    def rows(self) -> tuple[Row, ...]:
        """Throttles of the last look; before anything moves, as they would be."""
        return self._in_force or self._foreseen

    @property
    def _in_force(self) -> tuple[Row, ...]:
        return self._throttler.rows if self._throttler is not None else ()

    @property
    def figures(self) -> ThrottleFigures:
        """What is known of the throttle, for metrics."""
        overrides = self._throttling.overrides if self._throttling is not None else Overrides()
        return ThrottleFigures(self._in_force, self._tally, overrides)

    def events(self) -> tuple[Event, ...]:
        """Events since the last call."""
        found, self._events = tuple(self._events), []
        return found

    def _report(self, event: Event) -> None:
        self._events.append(event)

    def hosts(self) -> dict[int, str]:
        """The host that each broker gives its clients. Raises as `look`."""
        return self._fleet.hosts()

    def cluster_id(self) -> str:
        """The id that the cluster gave itself. Raises as `look`."""
        return self._fleet.cluster_id()

    def look(self, plan: FrozenPlan | None = None) -> Seen:
        """Raises Retryable or Permanent, naming the cluster; the latter also where a topic of the plan is not gone but
        hidden from this user."""
        seen = Seen(
            self._fleet.partitions(), self._fleet.moves(), frozenset(self._fleet.brokers()), self._fleet.topic_ids()
        )
        if plan is not None:
            self._fleet.require_visible([topic for topic in plan.topic_ids if topic not in seen.topic_ids])
        return seen

    def inputs(self, seen: Seen) -> PlanInputs:
        """What a plan is computed from: `seen`, with racks and storage."""
        return PlanInputs(seen, self._fleet.brokers(), self._fleet.storage())

    def throttle(self, plan: FrozenPlan, throttling: Throttling | None) -> None:
        """Throttle by these settings from now on, or not at all. The same settings change nothing."""
        if self._throttling == throttling and self._plan_hash == plan.hash:
            return
        self._throttling, self._plan_hash, self._due = throttling, plan.hash, 0.0
        self._foreseen = ()
        self._throttler = None
        if throttling is not None:
            context = Context(
                store=throttling.store,
                settings=throttling.settings,
                clock=self._clock,
                wall=time.time,
                loads=self._loads,
                check=self._fence.check,
                report=self._report,
                tally=self._tally,
            )
            self._throttler = Throttler(self._fleet, context, plan.concerns)

    def foresee(self, plan: FrozenPlan, seen: Seen, pace: Pace) -> None:
        """Let `rows` be how what would start now would be throttled; changes nothing."""
        if self._throttler is None or self._throttling is None or self._clock() < self._due:
            return
        self._foreseen = self._throttler.forecast(self._chosen(plan, seen, pace)[0])
        self._due = self._clock() + self._throttling.interval

    @property
    def throttles_something(self) -> bool:
        """Whether throttles of ours are recorded still. Reads the record."""
        return self._throttling is not None and bool(self._throttling.store.ownership())

    def start(self, plan: FrozenPlan, seen: Seen, pace: Pace) -> str:
        """Start what may start, throttled first. Returns what the cluster refused, in words; raises as `look`."""
        chosen, electing = self._chosen(plan, seen, pace)
        refused = self._reassign(chosen) if chosen else ""
        if electing:
            self._fence.check()
            self._fleet.elect_preferred_leaders(electing)
        return refused

    def _chosen(self, plan: FrozenPlan, seen: Seen, pace: Pace) -> tuple[Targets, list[TopicPartition]]:
        """What may be moved now, and what needs only an election."""
        verdicts = judge(plan, seen)
        targets: dict[TopicPartition, ReplicaSet] = {}
        waiting: list[TopicPartition] = []
        for move in plan.moves:
            if verdicts[move.key] is Verdict.MOVING:
                targets[move.key] = seen.moves[move.key].target
            elif verdicts[move.key] is Verdict.WAITING:
                targets[move.key] = next_target(plan, move, seen)
                waiting.append(move.key)
        electing = [key for key, verdict in verdicts.items() if verdict is Verdict.ELECTING]
        return startable(targets, waiting, seen.partitions, seen.moves, pace), electing

    def cancel(self, plan: FrozenPlan, seen: Seen) -> None:
        """Take back what moves by the plan."""
        moving = [key for key, verdict in judge(plan, seen).items() if verdict is Verdict.MOVING]
        if moving:
            self._fence.check()
            self._fleet.reassign(dict.fromkeys(moving))

    def round(self, *, at_once: bool = False) -> bool:
        """Decide about throttles again, when it is time or `at_once`. Returns whether some of ours are to be removed
        or confirmed still, on brokers that are alive."""
        if self._foreseen:  # what moves is decided about at once
            self._foreseen, self._due = (), 0.0
        if self._throttler is None or self._throttling is None:
            return False
        if at_once or self._clock() >= self._due:
            self._throttler.round()
            self._due = self._clock() + self._throttling.interval
        return self._throttler.unconfirmed

    def _reassign(self, chosen: Mapping[TopicPartition, ReplicaSet]) -> str:
        if self._throttler is not None:
            try:
                self._throttler.before_start(chosen)
            except Permanent as error:  # what is not throttled is not moved
                return str(error)
        self._fence.check()
        refused = self._fleet.reassign(dict(chosen))
        return "; ".join(f"{key}: {reason}" for key, reason in sorted(refused.items())[:5])
