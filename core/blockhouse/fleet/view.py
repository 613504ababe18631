"""Reports and progress as people read them. Layout only: every figure comes from `blockhouse.placement.report`."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from blockhouse.fleet.execution import Progress
from blockhouse.placement.model import PartitionMap
from blockhouse.placement.report import BrokerChange, Distribution, PartitionChange, Reason, Report

GIB = 1 << 30


def show_report(console: Console, report: Report, *, all_partitions: bool = False) -> None:
    """Print what changes and why, the brokers before and after, then warnings and errors."""
    changed = [c for c in report.partitions if all_partitions or Reason.NO_OP not in c.reasons]
    for note in report.notes:
        console.print(note, markup=False, soft_wrap=True)
    if report.targets:
        console.print(f"brokers to unload: {_ids(report.targets)}; tolerance {report.tolerance}", markup=False)
    if changed:
        console.print(_partition_table(changed))
    console.print(_broker_table(report.brokers))
    _show_summary(console, report, len(report.partitions) - len(changed) if not all_partitions else 0)
    for warning in report.warnings:
        console.print(f"[yellow]warning:[/] {escape(warning)}", soft_wrap=True)
    for error in report.errors:
        console.print(f"[red]error:[/] {escape(error)}", soft_wrap=True)


def show_progress(console: Console, progress: Progress) -> None:
    gone = f", {len(progress.gone)} deleted meanwhile" if progress.gone else ""
    console.print(
        f"{len(progress.done)} done, {len(progress.moving)} copying, {len(progress.electing)} syncing or electing, "
        f"{len(progress.waiting)} waiting{gone}"
    )


def show_states(console: Console, progress: Progress, plan: PartitionMap) -> None:
    """Print what executing the plan would still do."""
    table = Table("topic", "partition", "planned", "state", box=None)
    for state in ("waiting", "moving", "electing", "done"):
        for key in getattr(progress, state):
            table.add_row(key.topic, str(key.partition), _ids(plan[key]), state)
    console.print(table)


def _partition_table(changes: Iterable[PartitionChange]) -> Table:
    table = Table("topic", "partition", "before", "after", "why", box=None)
    for change in changes:
        why = ", ".join(change.reasons)
        table.add_row(change.topic, str(change.partition), _ids(change.before), _ids(change.after), why)
    return table


def _broker_table(brokers: Iterable[BrokerChange]) -> Table:
    table = Table("broker", "rack", "leaders", "followers", "replicas", "GiB free", box=None)
    for broker in brokers:
        before, after = broker.before, broker.after
        table.add_row(
            str(broker.id),
            broker.rack or "-",
            _change(before.leaders, after.leaders),
            _change(before.followers, after.followers),
            _change(before.leaders + before.followers, after.leaders + after.followers),
            _gib_change(before.free, after.free),
        )
    return table


def _show_summary(console: Console, report: Report, hidden: int) -> None:
    volume = "" if report.bytes_moved is None else f", {report.bytes_moved / GIB:.2f} GiB to copy"
    console.print(f"replicas moved: {report.replicas_moved}{volume}; unchanged partitions not shown: {hidden}")
    console.print(f"degree (min/max/mean): {_degree(report.before)} -> {_degree(report.after)}")
    for name, field in (("range", "storage_range"), ("deviation", "storage_deviation")):
        before, after = getattr(report.before, field), getattr(report.after, field)
        if before is not None:
            console.print(f"free space {name}: {before / GIB:.2f} -> {after / GIB:.2f} GiB")


def _degree(distribution: Distribution) -> str:
    return f"{distribution.degree_min}/{distribution.degree_max}/{distribution.degree_mean:.2f}"


def _change(before: int, after: int) -> str:
    return str(after) if before == after else f"{before} -> {after}"


def _gib_change(before: float | None, after: float | None) -> str:
    if before is None or after is None:
        return "-"
    if before == after:
        return f"{after / GIB:.2f}"
    return f"{before / GIB:.2f} -> {after / GIB:.2f}"


def _ids(ids: Iterable[int]) -> str:
    return ",".join(map(str, ids))
