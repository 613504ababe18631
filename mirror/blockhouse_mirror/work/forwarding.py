"""Reads records of many partitions and sends them on, none faster than its target takes them."""

from __future__ import annotations

import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from confluent_kafka import KafkaError

from blockhouse_mirror.protocol import provenance
from blockhouse_mirror.protocol.dead_letter import Outgoing
from blockhouse_mirror.protocol.progress import Progress, Run
from blockhouse_mirror.protocol.provenance import AFTER, HEADER
from blockhouse_mirror.work.alone import Alone
from blockhouse_mirror.work.link import Link
from blockhouse_mirror.work.source import END, GAPS, GONE, REFUSED, Key, Source
from blockhouse_mirror.work.target import CONSEQUENCES, Content, NotSent, Target

BATCH = 1000
READ_SECONDS, IDLE_READ_SECONDS = 0.005, 0.02
"""How long a batch is waited for that does not fill: what arrives first waits as long. Longer while nothing comes."""
RUN_BYTES = 64 << 10
"""Of records whose last one alone is acknowledged: each acknowledgement costs as much as sending a record does. Small
beside a batch of the producer, so that one that is refused has records which report it."""
CAREFUL_SECONDS, POLL_SECONDS = 0.05, 0.005
"""How long the records of one partition are sent alone before the other partitions are served, and how long the answer
to one of them is waited for at once."""
CAREFUL = 1000
"""Offsets behind a dead letter within which records are still sent alone: refusals are seldom single, and one of a
batch ends the task."""
PATIENCE = 1.0
"""Seconds for which acknowledgements are waited for before partitions that have none are paused."""

Send = Callable[[Link, list[int], list[Content]], None]
"""Sends records of a partition, given their source offsets and what goes to the target."""


@dataclass(frozen=True, slots=True)
class Careful:
    """A partition whose records are sent alone: by what, and what was read of it and waits."""

    alone: Alone
    waiting: deque[Any] = field(default_factory=deque)


class Forwarding:
    """Of one lease. `share` is how many bytes a partition may have in flight, `enough` how many all that are not paused
    have together before they are waited for; `refuse` ends one that cannot continue, with a reason and what happened.
    `links` are added and removed by the lease. `alone` makes what sends the records of a partition of which a batch was
    refused."""

    def __init__(
        self,
        source: Source,
        target: Target,
        target_cluster: str,
        links: Mapping[Key, Link],
        refuse: Callable[[Link, str, str], None],
        alone: Callable[[Progress], Alone],
    ) -> None:
        self.share = self.enough = 0
        self.records = 0
        self._source, self._target, self._target_cluster = source, target, target_cluster
        self._links, self._refuse, self._make_alone = links, refuse, alone
        self._careful: dict[Link, Careful] = {}
        self._pausing: list[Key] = []
        self._paused: dict[Key, Link] = {}
        self._enough_since: float | None = None
        self._read_seconds = IDLE_READ_SECONDS

    def forget(self, link: Link) -> None:
        """The partition is not read any more."""
        self._paused.pop(link.key, None)

    def forward(self) -> None:
        """Read a batch and send it on, or wait for acknowledgements."""
        if self._waits():
            self._target.poll(READ_SECONDS)
            return
        batch = self._source.read(BATCH, self._read_seconds)
        self._read_seconds = READ_SECONDS if batch else IDLE_READ_SECONDS
        for key, messages in _by_partition(batch).items():
            link = self._links.get(key)
            if link is None or link.ending:
                continue
            if link.careful:
                self._wait(link, messages)
            else:
                self._take(link, messages, self._send)
            if self._target.broken:
                return
        if self._pausing:
            # One whose target is slow must not hold the memory of the others.
            self._source.pause(self._pausing)
            self._pausing = []

    def _take(self, link: Link, messages: Iterable[Any], send: Send) -> None:
        for offsets, records in self._runs(link, messages):
            send(link, offsets, records)
            if link.ending or self._target.broken:
                return  # nothing is passed behind a record that was not sent
        if link.progress.in_flight_bytes > self.share and not link.paused and not link.ending:
            self._paused[link.key] = link
            self._pause(link)

    def _runs(self, link: Link, messages: Iterable[Any]) -> Iterator[tuple[list[int], list[Content]]]:
        """The records to send on, in order; whatever else is among them is noted when those before it are sent."""
        progress, origin = link.progress, link.origin
        read, after, last_epoch = progress.read, progress.after, progress.read_epoch
        size, offsets, records = 0, list[int](), list[Content]()
        for message in messages:
            error, offset = message.error(), message.offset()
            if error is not None:
                if records:
                    yield offsets, records
                    size, offsets, records = 0, [], []
                self._event(link, error, offset)
                if link.ending:
                    return
                continue
            if offset < read:
                continue  # read again after a pause
            headers, epoch = message.headers() or [], message.leader_epoch()
            comes_back = False
            for name, _ in headers:  # few or none: looking through them costs less than a call does
                if name == HEADER and provenance.came_from(headers, self._target_cluster):
                    comes_back = True
            if comes_back or epoch != last_epoch:
                if records:
                    yield offsets, records
                    size, offsets, records = 0, [], []
                last_epoch = epoch
                progress.in_epoch(offset, -1 if epoch is None else epoch)
            read = offset + 1
            if comes_back:
                progress.leave_out(offset)
                continue
            written = origin % offset
            if after != offset:
                written += AFTER % after
            headers.append((HEADER, written))
            after = read
            offsets.append(offset)
            records.append((message.value(), message.key(), message.timestamp()[1], headers))
            size += len(message)
            if size >= RUN_BYTES:
                yield offsets, records
                size, offsets, records = 0, [], []
        if records:
            yield offsets, records

    def _pause(self, link: Link) -> None:
        link.paused = True
        self._pausing.append(link.key)

    def _send(self, link: Link, offsets: list[int], records: list[Content]) -> None:
        """The client keeps the order and leaves no gap: the last one's acknowledgement is that of all."""
        try:
            self._target.send(link.assigned.target_topic, link.assigned.partition, records, link.delivered)
        except NotSent as error:
            self._not_sent(link, offsets, records, error)
        else:
            self._in_flight(link, offsets, records)

    def _in_flight(self, link: Link, offsets: list[int], records: list[Content]) -> None:
        values, _, moments, _ = zip(*records, strict=True)
        size = sum(map(len, filter(None, values)))
        link.progress.sent(Run(offsets[0], offsets[-1], len(records), size, min(moments), sum(moments)))
        self.records += len(records)

    def _not_sent(self, link: Link, offsets: list[int], records: list[Content], error: NotSent) -> None:
        """The client refused one of the records. Those before it were sent, and none of them reports what becomes of
        it: the producer ends as if a batch had been refused."""
        sent, code, text = error.sent, error.cause.code(), error.cause.str()
        if sent:
            self._in_flight(link, offsets[:sent], records[:sent])
        if code not in CONSEQUENCES:
            reason = "TargetPartitionUnknown" if code in GONE else "RecordRefused"
            self._refuse(link, reason, f"offset {offsets[sent]}: {text}")
        if sent or code in CONSEQUENCES:
            self._target.end(text)

    def _event(self, link: Link, error: KafkaError, offset: int) -> None:
        code = error.code()
        if code == END:
            link.progress.advance(offset)
        elif code in GAPS or code in GONE or code in REFUSED:
            reason = "Gap" if code in GAPS else "SourceTopicGone" if code in GONE else "SourceRefused"
            self._refuse(link, reason, error.str())
        # anything else passes: the client tries again by itself

    def _waits(self) -> bool:
        """Whether to read no more for now. The client drops what it has prefetched of a partition that is paused, and
        fetches and unpacks it again; so nothing is paused where the target is slow to all, only what is slower than the
        others."""
        if sum(link.progress.in_flight_bytes for link in self._links.values() if not link.paused) <= self.enough:
            self._enough_since = None
            return False
        now = time.monotonic()
        self._enough_since = self._enough_since or now
        return now - self._enough_since < PATIENCE

    def resume(self) -> None:
        ready = [key for key, link in self._paused.items() if link.progress.in_flight_bytes <= self.share // 2]
        for key in ready:
            self._paused.pop(key).paused = False
        if ready:
            self._source.resume(ready)

    # --- records that are sent alone ------------------------------------------------------------------------

    def _wait(self, link: Link, messages: Iterable[Any]) -> None:
        """These records and events are for when all before them is settled."""
        if link not in self._careful:
            self._careful[link] = Careful(self._make_alone(link.progress))
        self._careful[link].waiting.extend(messages)
        if not link.paused:
            self._pause(link)

    def poll(self) -> str:
        """Send on what waits, and hear what became of it. Why that is not known of one record; empty when it is."""
        for link, careful in list(self._careful.items()):
            self._advance(link, careful)
            if careful.alone.refusal is not None and not link.ending:
                self._refuse(link, *careful.alone.refusal)
            elif careful.alone.broken:
                return careful.alone.broken
            if not link.progress.settled or (careful.waiting and not link.ending):
                continue
            if not link.ending:
                link.paused = False
                self._source.resume([link.key])
            if link.ending or not link.careful:
                del self._careful[link]
        return ""

    def _advance(self, link: Link, careful: Careful) -> None:
        """One record after the other, for a short while: the other partitions wait for it."""
        alone, progress, deadline = careful.alone, link.progress, time.monotonic() + CAREFUL_SECONDS
        while time.monotonic() < deadline:
            if alone.poll(POLL_SECONDS):
                link.careful_until = max(link.careful_until, progress.read + CAREFUL)
            if alone.refusal is not None or alone.broken or link.ending:
                return
            if not progress.settled:
                continue
            link.careful = progress.read < link.careful_until
            if not link.careful:
                break
            if not careful.waiting:
                return
            self._take(link, [careful.waiting.popleft()], partial(self._send_alone, alone))
        if not link.careful:
            waiting = list(careful.waiting)
            careful.waiting.clear()
            self._take(link, waiting, self._send)

    def _send_alone(self, alone: Alone, link: Link, offsets: list[int], records: list[Content]) -> None:
        ((value, key, timestamp_ms, headers),) = records
        record = Outgoing(link.assigned.target_topic, link.assigned.partition, key, value, timestamp_ms, tuple(headers))
        alone.send(record, offsets[0], len(value or b""), link.delivered)
        self.records += 1


def _by_partition(batch: Iterable[Any]) -> dict[Key, list[Any]]:
    """The client hands out many records of one partition in a row: comparing costs less than a look-up of each."""
    found = defaultdict[Key, list[Any]](list)
    topic, partition, messages = "", -1, list[Any]()
    for message in batch:
        if message.partition() != partition or message.topic() != topic:
            topic, partition = key = message.topic(), message.partition()
            messages = found[key]
        messages.append(message)
    return found
