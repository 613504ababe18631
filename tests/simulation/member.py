"""The product's group member without its thread: commands one after the other, each taking its virtual time."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any

from confluent_kafka import TopicPartition

from blockhouse.errors import BlockhouseError
from blockhouse.streams import StreamId
from blockhouse_aggregator.kafka import member as product
from blockhouse_aggregator.kafka.coverage import Coverage
from blockhouse_aggregator.kafka.group import DropReason, GroupListener
from blockhouse_aggregator.kafka.health import Health
from blockhouse_aggregator.protocol.commits import APPLIED, CommitOutcome
from tests.simulation.clock import Process
from tests.simulation.kafka import Cluster, SimSession
from tests.simulation.world import World

LATE = 0.05
"""Seconds by which a callback is late only if its process was frozen."""
opening: list[SimMember] = []
"""The member whose session is being opened: the product's code asks its module for a session, not us."""


def open_session(*arguments: Any, **callbacks: Any) -> SimSession:
    """In place of `kafka.session.Session`."""
    return opening[-1].open(*arguments, **callbacks)


class _Carried:
    """The member's listener: its callbacks run when the call under way is over, on the driver's loop."""

    def __init__(self, member: SimMember, listener: GroupListener, driver: Process) -> None:
        self._member = member
        self._listener = listener
        self._driver = driver

    def _carry(self, call: Callable[..., None], *args: Any) -> None:
        self._member.loop.call_later(self._member.cost, call, *args, context=self._driver.context)

    def assigned(self, stream: StreamId, epoch: int) -> None:
        self._carry(self._listener.assigned, stream, epoch)

    def settling(self, held: Mapping[StreamId, int]) -> Future[None]:
        raise AssertionError("nothing waits in a simulated revoke")

    def dropped(self, stream: StreamId, epoch: int, reason: DropReason) -> None:
        self._carry(self._listener.dropped, stream, epoch, reason)

    def failed(self, error: BlockhouseError) -> None:
        self._carry(self._listener.failed, error)

    def recovered(self) -> None:
        self._carry(self._listener.recovered)


class Impatient(Coverage):
    """The simulated group leaves no stream without an owner; in some worlds a member is informed now and then that
    it had."""

    def __init__(self, world: World, *settings: Any) -> None:
        super().__init__(*settings)
        self._world = world
        self._not_before = 0.0

    def overdue(self) -> bool:
        now = self._world.loop.time()
        # Every round makes all members poll: without a pause rounds would bring forth rounds.
        if now < self._not_before or not self._world.chance(self._world.setting.chances.round):
            return False
        self._not_before = now + self._patience
        self._world.count("rounds begun")
        return True


class SimMember(product.GroupMember):
    """`threads` is the process part of the member's thread, `driver` that of the event loop."""

    def __init__(  # deliberately without the product's: it would start the thread
        self, cluster: Cluster, config: Any, kafka: Any, instance: str, listener: GroupListener,
        threads: Process, driver: Process, zone: int,
    ) -> None:  # fmt: skip
        self.loop = cluster.world.loop
        self._sim = cluster
        self._threads = threads
        self._zone = zone
        self._queue: deque[tuple[Callable[[], Any], Future[Any]]] = deque()
        self._free_at = 0.0
        self.confirmed: set[tuple[StreamId, int]] = set()
        self._cluster, self._kafka, self._instance_id = config, kafka, instance
        self._listener = _Carried(self, listener, driver)
        self._session = None
        self._owned = {}
        self._epoch = 0
        self._health = Health(self._listener, config.name)
        self._coverage = Impatient(cluster.world, config, kafka, instance)
        self._fenced_at = -math.inf
        self._closed = False
        self._leaving = self._settling = self._doomed = False

    @property
    def cost(self) -> float:
        session: Any = self._session
        return self._spent + (session.cost if session is not None else 0.0)

    _spent = 0.0
    _poll_waits = False

    def _open(self) -> None:
        opening.append(self)
        super()._open()
        opening.pop()

    def open(self, *_: Any, on_assign: Any, on_revoke: Any, on_lost: Any, on_error: Any) -> SimSession:
        """In place of `kafka.session.Session`."""
        session = SimSession(self._sim, self._threads, self._zone, self._instance_id, self.poll_soon)
        session.on_assign, session.on_revoke, session.on_lost = on_assign, on_revoke, on_lost
        self.poll_soon()
        return session

    def poll_soon(self) -> None:
        delay = self._sim.world.random.uniform(0.01, 0.6)
        self.loop.call_later(delay, self._answered, self.loop.time() + delay, context=self._threads.context)

    def _answered(self, at: float) -> None:
        """What the coordinator has answered by then; a client that was frozen meanwhile has to ask first."""
        (self._poll_now if self.loop.time() - at < LATE else self.poll_soon)()

    def _poll_now(self) -> None:
        if self._session is None or self._closed:
            return
        self._poll_waits = self.loop.time() < self._free_at
        if self._poll_waits:
            self.loop.call_later(self._free_at - self.loop.time(), self._poll_now, context=self._threads.context)
            return
        session: Any = self._session
        self._spent = session.cost = 0.0
        self._poll(session)
        if self._session is session and not self._sim.reachable(session):  # a new one is polled for itself
            self.loop.call_later(1.0, self._poll_now, context=self._threads.context)

    def _post(self, action: Callable[[], Any], *, settles: bool = False) -> Future[Any]:
        future: Future[Any] = Future()
        self._queue.append((action, future))
        self.loop.call_soon(self._work, context=self._threads.context)
        return future

    def _work(self) -> None:
        if not self._queue:
            return
        if self.loop.time() < self._free_at:
            self.loop.call_later(self._free_at - self.loop.time(), self._work, context=self._threads.context)
            return
        if self._poll_waits:  # the product polls between two commands, however many there are
            self._poll_now()
        action, future = self._queue.popleft()
        before: Any = self._session
        if before is not None:
            before.cost = 0.0
        self._spent = 0.0
        if not future.set_running_or_notify_cancel():  # no caller waits for it any more: the product leaves it out too
            self.loop.call_soon(self._work, context=self._threads.context)
            return
        result, error = None, None
        try:
            result = action()
        except BlockhouseError as raised:
            error = raised
        taken = before.cost if before is not None else 0.0
        self._free_at = self.loop.time() + taken
        done = (lambda: future.set_exception(error)) if error is not None else (lambda: future.set_result(result))
        self.loop.call_later(taken, done, context=self._threads.context)
        if self._queue:
            self.loop.call_later(taken, self._work, context=self._threads.context)

    def _detach(self, reason: DropReason) -> None:
        """A dropped session is reported when the call that made it invalid is over."""
        session: Any = self._session
        if session is not None:
            self._spent += session.cost
        super()._detach(reason)

    def _settle(self, held: Mapping[StreamId, int]) -> None:
        """Left out: the next owner of the streams finds blocks in flight, which is the harder case."""

    def _commit(self, stream: StreamId, epoch: int, target: TopicPartition) -> CommitOutcome:
        outcome = super()._commit(stream, epoch, target)
        if outcome == APPLIED:
            self.confirmed.add((stream, epoch))
        return outcome

    def close(self, leave: bool) -> None:
        if not self._closed:
            self._end(leave)
