"""What a controller decides by of a status page, also in a few characters: who knows these need not read the page."""

from __future__ import annotations

import json
from hashlib import sha256

from blockhouse.contract.aggregator import Phase, StatusPage, StreamStatus


def cold(stream: StreamStatus) -> bool:
    """Whether its owner has stored nothing of it yet, and could: no round has ended, or one has, and its blocks are the
    first and on their way. A table that waits for a decision has none there, or one with a reason."""
    counters, blocks = stream.counters, stream.blocks
    waits = stream.lag or stream.blocks or stream.lagging_tables
    if stream.state is not Phase.CONSUME or not waits or counters.blocks or counters.dead:
        return False
    return not counters.rounds or (bool(blocks) and not any(block.reason for block in blocks))


def digest(page: StatusPage) -> str:
    """Changes with everything that a restart, a rollout or a report of the operator depends on.

    It does not change with positions and figures, with whether a stream is drained, and with blocks in flight other
    than of tables that a rollout holds. It is the ETag of the answer; its content has no meaning to anyone.
    """
    held = {table.name for table in page.tables if table.rollout}
    streams = [
        (
            stream.stream,
            stream.state,
            stream.stopped.written() if stream.stopped is not None else None,
            cold(stream),
            sorted(held.intersection(block.table for block in stream.blocks)),
        )
        for stream in page.streams
    ]
    tables = [table.written() for table in page.tables]
    whole = (page.ready, page.suspended, page.restart.written(), page.away, page.clusters, streams, tables)
    return sha256(json.dumps(whole, sort_keys=True).encode()).hexdigest()[:32]
