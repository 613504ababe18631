"""Status and audit of a mirror as people read them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rich.console import Console
from rich.table import Table

from blockhouse.contract.mirror import MirrorPartition, MirrorStatus
from blockhouse.fleet.load.view import byte_rate
from blockhouse_mirror.audit.compare import PartitionAudit
from blockhouse_mirror.audit.judge import shown

LATEST = 10
"""Partitions listed: those that stand still, and the latest ones."""
LATE_SECONDS = 1.0
SOURCES = {
    "partition": "measured",
    "history": "measured by a former driver",
    "topic": "as others of its topic",
    "default": "not measured yet",
}


def show_status(console: Console, found: MirrorStatus) -> None:
    """A page: tasks, what is late, what stands still."""
    total = sum(task.bytes_per_second for task in found.tasks)
    behind = max((each.lag_seconds for each in found.partitions), default=0.0)
    cap = f" (capped by {found.capped_by})" if found.capped_by else ""
    console.print(
        f"mirror {found.mirror}: {found.source} -> {found.target}, {found.delivery}; {len(found.partitions)} "
        f"partitions, {len(found.tasks)} tasks{cap}, {byte_rate(total)}, latest {behind:.1f} s behind"
    )
    tasks = Table("task", "state", "partitions", "load", "against the mean")
    mean = total / len(found.tasks) if found.tasks else 0.0
    for task in found.tasks:
        share = task.bytes_per_second / mean if mean else 1.0
        state = "running" if task.running else "starting"
        tasks.add_row(task.name, state, str(task.partitions), byte_rate(task.bytes_per_second), f"{share:.2f}")
    console.print(tasks)
    listed = [each for each in found.partitions if each.stopped or each.waits or each.lag_seconds > LATE_SECONDS]
    listed.sort(key=lambda each: (not each.stopped, -each.lag_seconds))
    if listed:
        table = Table("partition", "task", "position", "behind", "state")
        for each in listed[:LATEST]:
            late = f"{each.lag_seconds:.1f} s"
            table.add_row(f"{each.topic}/{each.partition}", each.task, str(each.position), late, state_of(each))
        console.print(table)
        if len(listed) > LATEST:
            console.print(f"and {len(listed) - LATEST} more: --json has all")
    for heavy in found.offending:
        name, rate = f"{heavy.topic}/{heavy.partition}", byte_rate(heavy.bytes_per_second)
        console.print(f"offending: {name} at {rate}: {heavy.advice}")
    for topic, original in found.copies.items():
        console.print(f"left out: {topic} is the copy of {original} of {found.target}", markup=False)
    for what, error in found.errors.items():
        console.print(f"{what}: {error}", style="red", markup=False)


def state_of(partition: MirrorPartition) -> str:
    """One word, or why it is not mirrored."""
    if partition.stopped:
        return f"{partition.stopped}: {partition.message}"
    if partition.waits:
        return partition.waits
    return "mirrored" if partition.holder else "waits for its task"


def show_partition(console: Console, one: MirrorPartition, found: MirrorStatus) -> None:
    """Everything about one partition."""
    table = Table(show_header=False, box=None)
    rows = {
        "partition": f"{one.topic}/{one.partition} of {found.source}",
        "state": state_of(one),
        "task": one.task or "none",
        "position": f"{one.position} of {one.end}, {one.lag_seconds:.1f} s behind",
        "weighs": f"{byte_rate(one.bytes_per_second)}, {SOURCES.get(one.rate_source, one.rate_source)}",
        "mirrored": f"{one.records} records, {one.bytes} bytes since the driver started",
        "left out": f"{one.left_out} that came from {found.target}; {one.skipped} lost to gaps that were passed",
        "refused": f"{one.dead_letters} kept as dead letters",
    }
    for name, text in rows.items():
        table.add_row(name, text)
    console.print(table)
    for each in found.offending:
        if (each.topic, each.partition) == (one.topic, one.partition):
            console.print(f"offending: {each.share:.2f} of what a task can carry: {each.advice}")


def audit_table(found: Iterable[PartitionAudit]) -> Table:
    """A line a partition; offsets are those of the source."""
    table = Table(
        "partition", "records", "missing", "doubled", "changed", "strange", "reordered", "judged", "first offsets"
    )
    for each in found:
        first = [f"{name} {shown(offsets)}" for name, offsets in each.faults.items() if offsets.size]
        counts = [str(offsets.size) for offsets in each.faults.values()]
        name = f"{each.topic}/{each.partition}"
        table.add_row(name, str(each.compared), *counts, str(each.reordered), each.judged, "; ".join(first))
    return table


def audit_line(each: PartitionAudit) -> dict[str, Any]:
    """As JSON, with every offset."""
    faults = {name: offsets.tolist() for name, offsets in each.faults.items()}
    key = {"topic": each.topic, "partition": each.partition, "compared": each.compared}
    judged = {"refused": each.refused.tolist(), "judged": each.judged, "exact": each.exact}
    return key | faults | {"reordered": each.reordered} | judged
