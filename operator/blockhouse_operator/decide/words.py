"""How messages of conditions and Events count: one shard is, two shards are. Pure."""

from __future__ import annotations

_UNITS = ("KiB", "MiB", "GiB", "TiB")


def counted(number: int, one: str, many: str) -> str:
    """`number` of something: `counted(1, "shard is", "shards are")` is "1 shard is"."""
    return f"{number} {one if number == 1 else many}"


def shown_rate(bytes_per_second: float) -> str:
    """Two digits of a rate, so that it seldom changes: 12,700,000 is "13 MB/s"."""
    rate, unit = bytes_per_second, "B/s"
    for larger in ("kB/s", "MB/s", "GB/s"):
        if rate < 999.5:
            break
        rate, unit = rate / 1000, larger
    return f"{rate:.1f} {unit}" if 0 < rate < 9.95 else f"{round(rate, -1 if rate >= 99.5 else None):.0f} {unit}"


def shown_bytes(number: int) -> str:
    """`1536` is "1.5 KiB"."""
    size, unit = float(number), ""
    for larger in _UNITS:
        if size < 1024:
            break
        size, unit = size / 1024, larger
    return f"{size:.1f} {unit}" if unit else f"{number} bytes"
