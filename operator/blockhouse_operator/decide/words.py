"""How messages of conditions and Events count: one shard is, two shards are. Pure."""

from __future__ import annotations


def counted(number: int, one: str, many: str) -> str:
    """`number` of something: `counted(1, "shard is", "shards are")` is "1 shard is"."""
    return f"{number} {one if number == 1 else many}"
