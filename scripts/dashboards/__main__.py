"""`python -m scripts.dashboards`: writes docs/dashboards.md and the JSON of each board, and removes other files."""

from __future__ import annotations

from pathlib import Path

from scripts.dashboards.boards import BOARDS
from scripts.dashboards.panels import render
from scripts.dashboards.seen import section

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "charts" / "blockhouse" / "files" / "dashboards"
PAGE = ROOT / "docs" / "dashboards.md"
_INTRO = """# Dashboards

For Grafana 10 and newer: the files in `charts/blockhouse/files/dashboards`. The chart's
`monitoring.dashboards.enabled` makes a ConfigMap of each, with the label that the sidecar of Grafana's own chart looks
for; elsewhere, import the files. They ask any Prometheus that scrapes the programs, with the chart's PodMonitor or
without Kubernetes: "All" in a choice also takes series that lack its label. A panel's text in Grafana is what is here.
What a metric means is in [metrics.md](metrics.md), what to do about an alert in [alerts.md](alerts.md).

The pictures are such panels, drawn from what a Prometheus saw of a run of `make alerts` on 2026-11-27
([testing.md](testing.md#alerts)): two shards with two replicas each, 30 messages a second to each shard. Its faults are
below the time axis, which is in minutes since production began.

This page and the files are generated from `scripts/dashboards` by `scripts/generate`.
"""


def page() -> str:
    """docs/dashboards.md: every board with its panels."""
    lines = [_INTRO]
    for board in BOARDS:
        choices = ", ".join(f"`{variable.name}`" for variable in board.variables)
        lines += [f"## {board.title}", "", f"{board.text} Choices: {choices}.", ""]
        lines += ["| row | panel | what it shows |", "|---|---|---|"]
        lines += [f"| {row.title} | {panel.title} | {panel.text} |" for row in board.rows for panel in row.panels]
        lines += ["", *section(board.uid)]
    return "\n".join(lines)


def main() -> None:
    """Writes the files."""
    FOLDER.mkdir(exist_ok=True)
    boards = {f"{board.uid}.json": render(board) for board in BOARDS}
    for name, text in boards.items():
        (FOLDER / name).write_text(text)
    for file in FOLDER.iterdir():
        if file.name not in boards:
            file.unlink()
    PAGE.write_text(page())


if __name__ == "__main__":
    main()
