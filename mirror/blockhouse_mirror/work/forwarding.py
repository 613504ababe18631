"""Reads records of many partitions and sends them on, none faster than its target takes them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from confluent_kafka import KafkaError, KafkaException

from blockhouse_mirror.protocol import provenance
from blockhouse_mirror.protocol.dead_letter import Outgoing
from blockhouse_mirror.work.alone import Alone
from blockhouse_mirror.work.link import Link
from blockhouse_mirror.work.source import END, GAPS, GONE, REFUSED, Key, Source
from blockhouse_mirror.work.target import CONSEQUENCES, Target

BATCH = 1000
READ_SECONDS = 0.02
CAREFUL = 1000
"""Offsets behind a dead letter within which records are still sent alone: refusals are seldom single, and one of a
batch ends the task."""


class Forwarding:
    """Of one lease. `share` is how many bytes a partition may have in flight; `refuse` ends one that cannot continue,
    with a reason and what happened. `links` are added and removed by the lease. `alone` makes what sends the records of
    a partition of which a batch was refused."""

    def __init__(
        self,
        source: Source,
        target: Target,
        target_cluster: str,
        links: Mapping[Key, Link],
        refuse: Callable[[Link, str, str], None],
        alone: Callable[[], Alone],
    ) -> None:
        self.share = 0
        self.records = 0
        self._source, self._target, self._target_cluster = source, target, target_cluster
        self._links, self._refuse, self._make_alone = links, refuse, alone
        self._alone: dict[Link, Alone] = {}
        self._paused: dict[Key, Link] = {}

    def forget(self, link: Link) -> None:
        """The partition is not read any more."""
        self._paused.pop(link.key, None)

    def forward(self) -> None:
        """Read a batch and send it on."""
        links, target_cluster, pause = self._links, self._target_cluster, list[Key]()
        for message in self._source.read(BATCH, READ_SECONDS):
            link = links.get((message.topic(), message.partition()))
            if link is None or link.ending:
                continue
            if (error := message.error()) is not None:
                self._event(link, error, message.offset())
                continue
            offset, progress = message.offset(), link.progress
            if offset < progress.read or (link.careful and not progress.settled):
                continue  # read again after a pause
            headers = message.headers() or []
            epoch = message.leader_epoch()
            progress.in_epoch(offset, -1 if epoch is None else epoch)
            if headers and provenance.came_from(headers, target_cluster):
                progress.leave_out(offset)
                continue
            if link.careful:
                self._send_alone(link, message, offset, headers)
            else:
                self._send(link, message, offset, headers)
            if self._waits(link):
                link.paused = True
                self._paused[link.key] = link
                pause.append(link.key)
        if pause:
            # One whose target is slow must not hold the memory of the others.
            self._source.pause(pause)

    def _send(self, link: Link, message: Any, offset: int, headers: list[tuple[str, Any]]) -> None:
        assigned, progress = link.assigned, link.progress
        origin = link.format.encode(offset, progress.after)
        _, timestamp = message.timestamp()
        try:
            self._target.send(
                assigned.target_topic,
                assigned.partition,
                message.key(),
                message.value(),
                timestamp,
                [*headers, (provenance.HEADER, origin)],
                link.delivered,
            )
        except KafkaException as error:
            cause = error.args[0]
            if cause.code() not in CONSEQUENCES:
                reason = "TargetPartitionUnknown" if cause.code() in GONE else "RecordRefused"
                self._refuse(link, reason, f"offset {offset}: {cause.str()}")
            return
        progress.sent(offset, len(message), timestamp)
        self.records += 1

    def _send_alone(self, link: Link, message: Any, offset: int, headers: list[tuple[str, Any]]) -> None:
        if link not in self._alone:
            self._alone[link] = self._make_alone()
        origin = link.format.encode(offset, link.progress.after)
        record = Outgoing(
            link.assigned.target_topic,
            link.assigned.partition,
            message.key(),
            message.value(),
            message.timestamp()[1],
            (*headers, (provenance.HEADER, origin)),
        )
        self._alone[link].send(link.progress, record, offset, len(message), link.delivered)
        self.records += 1

    def poll(self) -> str:
        """Hear what became of the records that were sent alone. Why that is not known of one; empty when it is."""
        for link, alone in list(self._alone.items()):
            if alone.poll():
                link.careful_until = max(link.careful_until, link.progress.read + CAREFUL)
            if alone.refusal is not None:
                self._refuse(link, *alone.refusal)
            elif alone.broken:
                return alone.broken
            if link.progress.settled and (link.ending or not link.careful):
                del self._alone[link]
        return ""

    def _event(self, link: Link, error: KafkaError, offset: int) -> None:
        code = error.code()
        if code == END:
            if not (link.careful and link.paused):  # else there were records before it that are read again
                link.progress.advance(offset)
        elif code in GAPS or code in GONE or code in REFUSED:
            reason = "Gap" if code in GAPS else "SourceTopicGone" if code in GONE else "SourceRefused"
            self._refuse(link, reason, error.str())
        # anything else passes: the client tries again by itself

    def _waits(self, link: Link) -> bool:
        """Whether a partition that has just sent a record has to wait for acknowledgements now."""
        full = link.careful or link.progress.in_flight_bytes > self.share
        return full and not link.paused and not link.ending

    def resume(self) -> None:
        ready = [key for key, link in self._paused.items() if self._may_continue(link)]
        for key in ready:
            link = self._paused.pop(key)
            link.paused = False
            if link.careful:
                self._source.seek(key, link.progress.read)
                link.careful = link.progress.read < link.careful_until
        if ready:
            self._source.resume(ready)

    def _may_continue(self, link: Link) -> bool:
        if link.careful:
            return link.progress.settled
        return link.progress.in_flight_bytes <= self.share // 2
