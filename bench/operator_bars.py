"""What an operator of idle shards may cost on any machine, however slow: requests, writes and memory, never times.

`bench/operator_scale.py` ends with exit code 1 where one is broken.
"""

from __future__ import annotations

IDLE_REQUESTS = 5.0
"""A second, with those of the operator's own Leases, at any number of shards."""
IDLE_REQUESTS_OF_50 = 2.0
"""The same at 50 shards and fewer: less than what one request a minute for each shard would add."""
MEMORY = 600 << 20
"""Bytes, at any number of shards."""
MEMORY_OF_50 = 200 << 20
"""Bytes, at 50 shards and fewer."""
FEW = 50


def broken(shards: int, idle_requests: float, idle_writes: int, memory: int) -> list[str]:
    """What is too much, in words. `idle_requests` are a second; `idle_writes`, without those of Leases, all of the time
    in which nothing changed."""
    few = shards <= FEW
    most_requests, most_memory = (IDLE_REQUESTS_OF_50, MEMORY_OF_50) if few else (IDLE_REQUESTS, MEMORY)
    found = []
    if idle_writes > 0:
        found.append(f"{shards} shards: {idle_writes} writes while nothing changes, of 0")
    if idle_requests > most_requests:
        found.append(f"{shards} shards: {idle_requests:.1f} requests a second while idle, of {most_requests:g}")
    if memory > most_memory:
        found.append(f"{shards} shards: {memory >> 20} MiB of memory, of {most_memory >> 20}")
    return found
