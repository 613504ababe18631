"""What `bench/operator_scale.py` measures, and its tables."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from rich.console import Console
from rich.table import Table

out = Console(width=140)


@dataclass(frozen=True)
class Figures:
    """Of one size. Times in seconds, memory in bytes."""

    shards: int
    heard_after: float
    """From a change of the pipeline's spec, while its first shards were being created, to its `observedGeneration`."""
    ready_after: float
    requests: int
    writes: int
    cpu: float
    """Processor time of the operator from the apply until topics and tables were as specified."""
    quiet_requests: float
    """A second, as the figures below in two resyncs in which nothing changes."""
    quiet_writes: int
    quiet_cpu: float
    """Of a core."""
    memory: int


@dataclass(frozen=True)
class Reactions:
    """Of an operator whose shards are all idle, in seconds."""

    changed: float
    """From another's change of one shard until that is as the pipeline has it; the median of some shards."""
    resync: float
    """Until every shard was reconciled once more, at the `--resync`."""
    restart: float
    """From the start of another process until it leads, has reconciled every shard and is behind with none."""
    restart_writes: int
    """Of that process until then, those of its Lease apart."""


def show(found: list[Figures]) -> None:
    table = Table(title="The operator by size; 4 replicas a shard", title_justify="left")
    for column in ("shards", "spec heard after", "Ready after", "requests/shard", "writes/shard", "CPU/shard"):
        table.add_column(column, justify="right")
    for column in ("idle requests/s", "idle writes", "idle CPU", "memory"):
        table.add_column(column, justify="right")
    for one in found:
        table.add_row(
            str(one.shards),
            f"{one.heard_after:.1f} s",
            f"{one.ready_after:.0f} s",
            f"{one.requests / one.shards:.0f}",
            f"{one.writes / one.shards:.0f}",
            f"{one.cpu / one.shards:.2f} s",
            f"{one.quiet_requests:.1f}",
            str(one.quiet_writes),
            f"{one.quiet_cpu:.3f} cores",
            f"{one.memory >> 20} MiB",
        )
    out.print(table)
    if len(found) > 1:
        show_slopes(found)


def show_reactions(sizes: list[int], found: list[Reactions], resync: str) -> None:
    table = Table(title=f"Reactions while all shards are idle; --resync {resync}", title_justify="left")
    for column in ("shards", "a change corrected after", "all reconciled within", "restarted within", "its writes"):
        table.add_column(column, justify="right")
    for size, one in zip(sizes, found, strict=True):
        table.add_row(
            str(size), f"{one.changed:.1f} s", f"{one.resync:.0f} s", f"{one.restart:.0f} s", str(one.restart_writes)
        )
    out.print(table)


def show_slopes(found: list[Figures]) -> None:
    table = Table(title="What each further shard adds", title_justify="left")
    for column in ("shards", "Ready after", "requests", "writes", "CPU", "idle requests/s", "idle CPU", "memory"):
        table.add_column(column, justify="right")
    for less, more in pairwise(found):
        by = more.shards - less.shards
        table.add_row(
            f"{less.shards} to {more.shards}",
            f"{(more.ready_after - less.ready_after) / by:.2f} s",
            f"{(more.requests - less.requests) / by:.0f}",
            f"{(more.writes - less.writes) / by:.0f}",
            f"{(more.cpu - less.cpu) / by:.2f} s",
            f"{(more.quiet_requests - less.quiet_requests) / by:.4f}",
            f"{(more.quiet_cpu - less.quiet_cpu) / by * 1000:.3f} ms/s",
            f"{(more.memory - less.memory) / by / 1024:.0f} KiB",
        )
    out.print(table)
