"""Reads records of many partitions and sends them on, none faster than its target takes them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from confluent_kafka import KafkaError, KafkaException

from blockhouse_mirror.protocol import provenance
from blockhouse_mirror.work.link import Link
from blockhouse_mirror.work.source import END, GAPS, GONE, REFUSED, Key, Source
from blockhouse_mirror.work.target import CONSEQUENCES, Target

BATCH = 1000
READ_SECONDS = 0.02
PATIENCE = 1.0
"""Seconds for which acknowledgements are waited for before partitions that have none are paused."""


class Forwarding:
    """Of one lease. `share` is how many bytes a partition may have in flight, `enough` how many all that are not paused
    have together before they are waited for; `refuse` ends one that cannot continue, with a reason and what happened.
    `links` are added and removed by the lease."""

    def __init__(
        self,
        source: Source,
        target: Target,
        target_cluster: str,
        links: Mapping[Key, Link],
        refuse: Callable[[Link, str, str], None],
    ) -> None:
        self.share = self.enough = 0
        self.records = 0
        self._source, self._target, self._target_cluster = source, target, target_cluster
        self._links, self._refuse = links, refuse
        self._paused: dict[Key, Link] = {}
        self._enough_since: float | None = None

    def forget(self, link: Link) -> None:
        """The partition is not read any more."""
        self._paused.pop(link.key, None)

    def forward(self) -> None:
        """Read a batch and send it on, or wait for acknowledgements."""
        if self._waits():
            self._target.poll(READ_SECONDS)
            return
        links, target_cluster, share, pause = self._links, self._target_cluster, self.share, list[Key]()
        for message in self._source.read(BATCH, READ_SECONDS):
            link = links.get((message.topic(), message.partition()))
            if link is None or link.ending:
                continue
            if (error := message.error()) is not None:
                self._event(link, error, message.offset())
                continue
            offset, progress = message.offset(), link.progress
            if offset < progress.read or (link.assigned.careful and not progress.settled):
                continue  # read again after a pause
            headers = message.headers() or []
            epoch = message.leader_epoch()
            if epoch != progress.read_epoch:
                progress.in_epoch(offset, -1 if epoch is None else epoch)
            if headers and provenance.came_from(headers, target_cluster):
                progress.leave_out(offset)
                continue
            self._send(link, message, offset, headers)
            if (progress.in_flight_bytes > share or link.assigned.careful) and not (link.paused or link.ending):
                link.paused = True
                self._paused[link.key] = link
                pause.append(link.key)
        if pause:
            # One whose target is slow must not hold the memory of the others.
            self._source.pause(pause)

    def _send(self, link: Link, message: Any, offset: int, headers: list[tuple[str, Any]]) -> None:
        progress = link.progress
        headers.append((provenance.HEADER, link.format.encode(offset, progress.after)))
        _, timestamp = message.timestamp()
        try:
            self._target.send(link.assigned.target_topic, message, timestamp, headers, link.delivered)
        except KafkaException as error:
            cause = error.args[0]
            if cause.code() not in CONSEQUENCES:
                reason = "TargetPartitionUnknown" if cause.code() in GONE else "RecordRefused"
                self._refuse(link, reason, f"offset {offset}: {cause.str()}")
            return
        progress.sent(offset, len(message), timestamp)
        self.records += 1

    def _event(self, link: Link, error: KafkaError, offset: int) -> None:
        code = error.code()
        if code == END:
            if not (link.assigned.careful and link.paused):  # else there were records before it that are read again
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
        ready = [key for key, link in self._paused.items() if self._may_continue(link)]
        for key in ready:
            link = self._paused.pop(key)
            link.paused = False
            if link.assigned.careful:
                self._source.seek(key, link.progress.read)
        if ready:
            self._source.resume(ready)

    def _may_continue(self, link: Link) -> bool:
        if link.assigned.careful:
            return link.progress.settled
        return link.progress.in_flight_bytes <= self.share // 2
