"""Figures as lines of text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from bench.race import Run, Summary


def run_titles() -> str:
    return (
        f"{'round':>5} {'':20}{'k rows/s':>9}{'seconds':>9} |{'machine':>8}{'settled':>8}{'loader':>8}"
        f"{'kafka':>7}{'zk':>6}{'house':>7}  CPU s per M rows |{'requests to zk':>15}{'strangers, cores':>17}"
    )


def run_line(run: Run) -> str:
    per_million = 1e6 / run.rows
    servers = run.servers
    return (
        f"{run.round:>5} {run.name:20}{run.rows_per_second / 1e3:9.0f}{run.seconds:9.2f} |"
        f"{run.machine:8.2f}{run.settled:8.2f}{_figure(run.loader_per_million, 8)}"
        f"{servers.kafka * per_million:7.2f}{servers.zookeeper * per_million:6.2f}"
        f"{servers.clickhouse * per_million:7.2f}{'':19}|{run.requests * per_million:15.0f}{run.strangers:17.2f}"
    )


def summary_table(summaries: Sequence[Summary], titles: Mapping[str, str]) -> str:
    """Medians, and ratios of rows per second to the limit and to the loop of the same round."""
    width = max(len(titles[line.name]) for line in summaries)
    lines = [
        "",
        "Medians; per million rows CPU seconds of servers and loader until stored and until merged, ZooKeeper requests",
        f"{'':{width}}{'runs':>6}{'k rows/s':>10}{'machine':>9}{'settled':>9}{'loader':>8}{'zk':>7}"
        f"{'/ limit':>9}{'/ loop':>8}",
    ]
    lines += [
        f"{titles[s.name]:{width}}{s.runs:>6}{s.rows_per_second / 1e3:10.0f}{s.machine:9.2f}{s.settled:9.2f}"
        f"{_figure(s.loader, 8)}{s.requests:7.0f}{_figure(s.to_limit, 9)}{_figure(s.to_loop, 8)}"
        for s in summaries
    ]
    return "\n".join(lines)


def _figure(value: float | None, width: int) -> str:
    return f"{'-':>{width}}" if value is None else f"{value:{width}.2f}"
