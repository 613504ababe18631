"""One lease of one task, inside a Spark Python worker: mirror the partitions that the driver assigns, report, release.

A task keeps no truth. If it dies, the driver waits until nothing of it can arrive any more, and another task continues
from the position on the target and from what is written behind it.
"""

from __future__ import annotations

import contextlib
import os
import queue
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Mapping

from confluent_kafka import KafkaError, KafkaException

from blockhouse.errors import Retryable
from blockhouse.gate.client import GateConnection
from blockhouse_mirror.gate.messages import (
    FROM_DRIVER,
    Alive,
    Assign,
    Assigned,
    Bye,
    Failed,
    FromDriver,
    FromTask,
    Ping,
    Released,
    Revoke,
    Stop,
    Welcome,
)
from blockhouse_mirror.protocol.progress import Progress
from blockhouse_mirror.protocol.takeover import after_tail
from blockhouse_mirror.work import refusals
from blockhouse_mirror.work.alone import Alone
from blockhouse_mirror.work.forwarding import Forwarding
from blockhouse_mirror.work.grant_clock import GrantClock
from blockhouse_mirror.work.lease import LeaseFigures, MirrorLease
from blockhouse_mirror.work.link import Link, Tails, report_of
from blockhouse_mirror.work.source import Key, Source
from blockhouse_mirror.work.tail import Tail, read_tails
from blockhouse_mirror.work.target import LINGER_MS, REPORT_SECONDS, Target

TAIL_SECONDS = 30.0
LEAST_SHARE = 256 << 10
"""Bytes a partition may have in flight however many there are, so that small ones are not sent record by record."""
WATCH_SECONDS = 0.1
PING_SECONDS = 1.0
EXIT_UNCLEAN = 72


def run_leases(leases: Iterable[MirrorLease]) -> Iterator[LeaseFigures]:
    """For `mapPartitions`. Drains its input: a worker whose function does not is thrown away by Spark."""
    for lease in leases:
        yield _Lease(lease).run()


class _Lease:
    def __init__(self, lease: MirrorLease) -> None:
        self._lease = lease
        work = f"{lease.mirror}/{lease.task}"
        self._gate: GateConnection[FromTask, FromDriver, Welcome] = GateConnection(
            lease.gate, work, lease.epoch, lease.number, from_driver=FROM_DRIVER, welcome=Welcome
        )
        self._welcome = welcome = self._gate.welcome
        self._name = f"blockhouse-mirror-{lease.mirror}"
        self._source = Source(lease.source, self._name, welcome.in_flight)
        self._target = self._make_target(LINGER_MS)
        self._orders: queue.SimpleQueue[FromDriver | Tails | None] = queue.SimpleQueue()
        self._clock = GrantClock(welcome.grant_seconds)
        self._links: dict[Key, Link] = {}
        self._ending: dict[Key, Link] = {}
        self._failures: list[tuple[Link, KafkaError]] = []
        self._stopping = False
        self._over = threading.Event()
        self._reported_at = 0.0
        self._forwarding = Forwarding(
            self._source,
            self._target,
            welcome.target_cluster,
            self._links,
            self._refuse,
            lambda progress: Alone(progress, lambda: self._make_target(0), welcome.dead_letters),
        )

    def _make_target(self, linger_ms: int) -> Target:
        welcome = self._welcome
        return Target(self._lease.target, self._name, 2 * welcome.in_flight, welcome.compression, linger_ms)

    def run(self) -> LeaseFigures:
        threading.Thread(target=self._listen, name="gate-reader", daemon=True).start()
        threading.Thread(target=self._watch, name="grant-watch", daemon=True).start()
        clean = False
        try:
            clean = self._work()
        except OSError:
            pass  # the driver is gone: what is in flight is for the next task to find
        finally:
            self._target.purge()
            self._gate.close()
            if not clean:
                # What is in flight would be sent again for as long as its client lives, and Spark may give this
                # process to the next lease.
                end_process(EXIT_UNCLEAN)
            self._over.set()
            self._source.close()
        return LeaseFigures(self._lease.task, self._forwarding.records)

    def _work(self) -> bool:
        """Until the end; True when all that was sent is acknowledged and nothing more will be."""
        while not (self._stopping and not self._links):
            if not self._obey():
                return False
            self._clock.check()
            self._forwarding.forward()
            self._target.poll(0)
            unknown = self._forwarding.poll()
            if self._failures or self._target.broken or unknown:
                self._refused(self._target.broken or unknown)
                return False
            self._forwarding.resume()
            self._release()
            self._report()
        self._gate.send(Bye())
        return True

    # --- the driver -----------------------------------------------------------------------------------------

    def _listen(self) -> None:
        for message in self._gate.messages():
            if isinstance(message, Alive):
                self._clock.heard(message.moment)
            else:
                self._orders.put(message)
        self._orders.put(None)

    def _watch(self) -> None:
        asked_at = 0.0
        while not self._over.wait(WATCH_SECONDS):
            self._clock.check()
            if (now := self._clock.now()) - asked_at >= PING_SECONDS:
                asked_at = now
                with contextlib.suppress(OSError):  # the driver is gone: the thread that reads from it ends the lease
                    self._gate.send(Ping(moment=now))

    def _obey(self) -> bool:
        """Carry out what the driver asks; False when it is gone."""
        while not self._orders.empty():
            match self._orders.get():
                case Assign(partitions=partitions):
                    self._assign(partitions)
                case Tails() as tails:
                    self._start(tails)
                case Revoke(partitions=keys):
                    for key in keys:
                        link = self._links.get((key.topic, key.partition))
                        if link is not None and link.assigned.generation == key.generation:
                            self._end(link)
                case Stop():
                    self._stopping = True
                    for link in self._links.values():
                        self._end(link)
                case None:
                    return False
                case Alive() | Welcome() as message:  # the one is heard elsewhere, the other comes once
                    raise ValueError(f"unexpected from the driver: {message.type}")
        return True

    def _assign(self, partitions: tuple[Assigned, ...]) -> None:
        for each in partitions:
            link = Link(each, self._welcome.source_cluster, self._failures)
            self._links[link.key] = link
        self._forwarding.share = max(LEAST_SHARE, self._welcome.in_flight // len(self._links))
        self._forwarding.enough = self._welcome.in_flight // 2
        if self._welcome.read_tail:
            # By itself: a broker that does not answer must not hold the partitions that are mirrored already.
            threading.Thread(target=self._read_tails, args=(partitions,), name="tails", daemon=True).start()
        else:
            self._start(Tails(partitions, {}))

    def _read_tails(self, partitions: tuple[Assigned, ...]) -> None:
        begins = {(each.target_topic, each.partition): each.tail for each in partitions}
        found: Mapping[Key, Tail] | Retryable
        try:
            for topic in {each.target_topic for each in partitions}:
                self._target.learn(topic, TAIL_SECONDS)
            found = read_tails(self._lease.target, self._name, begins, TAIL_SECONDS)
        except Retryable as error:
            found = error
        except KafkaException as error:
            found = Retryable(f"the target does not answer which partitions it has: {error.args[0].str()}")
        self._orders.put(Tails(partitions, found))

    def _start(self, tails: Tails) -> None:
        places = []
        for each in tails.partitions:
            link = self._links.get((each.topic, each.partition))
            if link is None or link.assigned is not each or link.ending:
                continue
            if isinstance(tails.found, Retryable):
                del self._links[link.key]
                self._fail(each, "TailUnreadable", str(tails.found), released=True)
                continue
            link.progress = self._continued(each, tails.found.get((each.target_topic, each.partition)))
            link.started = True
            places.append((link.key, link.progress.read, link.progress.epoch))
        if places:
            self._source.add(places)

    def _continued(self, assigned: Assigned, tail: Tail | None) -> Progress:
        """Behind what a former task wrote after the position."""
        if tail is None:
            return Progress(assigned.offset, assigned.epoch, assigned.tail)
        source = (self._welcome.source_cluster, assigned.topic_id, assigned.partition)
        own = (origin for origin in tail.origins if (origin.cluster, origin.topic_id, origin.partition) == source)
        offset = after_tail(assigned.offset, own, cut=assigned.tail_cut)
        return Progress(offset, assigned.epoch if offset == assigned.offset else -1, tail.end)

    # --- the end of a partition -----------------------------------------------------------------------------

    def _refused(self, broken: str) -> None:
        """A record was refused: the producer sends nothing more, and the lease ends as if it had crashed."""
        deadline = time.monotonic() + REPORT_SECONDS
        while not self._failures and self._target.broken and time.monotonic() < deadline:
            self._target.poll(WATCH_SECONDS)
        self._report(last=True)  # what was acknowledged before is a position, also that of the record at fault
        for link, text, until in refusals.of_batch(self._failures, self._links.values(), broken):
            self._fail(link.assigned, "RecordRefused", text, careful_until=until)

    def _end(self, link: Link) -> None:
        """Read no more of it; it is released when all that was sent is acknowledged."""
        if link.ending:
            return
        link.ending = True
        self._ending[link.key] = link
        self._forwarding.forget(link)
        if link.started:
            self._source.remove([link.key])

    def _refuse(self, link: Link, reason: str, message: str) -> None:
        batch = reason == "RecordRefused" and not link.careful
        self._end(link)
        self._fail(link.assigned, reason, message, careful_until=link.progress.read + 1 if batch else -1)

    def _release(self) -> None:
        for key in [key for key, link in self._ending.items() if link.progress.settled]:
            link = self._ending.pop(key)
            del self._links[key]
            self._gate.send(Released.model_validate(link.place()))

    def _fail(
        self, assigned: Assigned, reason: str, message: str, *, released: bool = False, careful_until: int = -1
    ) -> None:
        self._gate.send(
            Failed(
                topic=assigned.topic,
                partition=assigned.partition,
                generation=assigned.generation,
                reason=reason,
                message=message,
                released=released,
                careful_until=careful_until,
            )
        )

    def _report(self, *, last: bool = False) -> None:
        now = time.monotonic()
        if now - self._reported_at < self._welcome.report_interval and not last:
            return
        self._reported_at = now
        report = report_of(self._links.values(), self._source)
        if report is not None:
            self._gate.send(report)


def end_process(code: int) -> None:
    """At once, with all threads of its clients. What went through the gate arrives."""
    sys.stderr.flush()
    os._exit(code)
