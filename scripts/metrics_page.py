"""Writes docs/metrics.md: every metric of every program, read off the programs themselves, and the alerts that use it.

Usage: python -m scripts.metrics_page
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import yaml
from prometheus_client import CollectorRegistry

from blockhouse.serving import process_figures
from blockhouse_aggregator.runtime.figures import Figures
from blockhouse_aggregator.verifier.figures import Figures as VerifierFigures
from blockhouse_mirror.runtime.partitions import Partitions
from blockhouse_mirror.runtime.status import MirrorCollector
from blockhouse_operator.adapters.figures import Figures as OperatorFigures
from blockhouse_operator.handlers.inventory import Inventory
from blockhouse_operator.health import LoopFigures

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "metrics.md"
ALERTS = ROOT / "charts" / "blockhouse" / "files" / "alerts.yaml"
_SAMPLES: Mapping[str, tuple[str, ...]] = {
    "counter": ("_total",),
    "gauge": ("",),
    "histogram": ("_bucket", "_sum", "_count"),
    "info": ("_info",),
}
"""By type, what the names of a family's samples end with."""
_INTRO = """# Metrics

Every program answers `/metrics` with what is listed for it here and with the `process_*` metrics of Prometheus' own
client. Names, types and labels are read off the programs by `scripts/generate`. The labels `cluster`, `topic` and
`partition` name a stream. What is reported of a stream or of a table that lags is there only while this process owns
the stream; counters stay until it ends. A table's metrics have the label `table`, `database.table`. The alerts are
those of [alerts.md](alerts.md); [lag.md](lag.md) names the figure that answers a question.

Of the operator, `blockhouse_operator_resource_ready` has a series for each resource, shards included: 2,050 for as many
shards. `blockhouse_operator_resource_condition` has one only for a condition that is not normal: none while all is
well, one or two for a shard that is changed, eight at most (16,400 for 2,050 shards). What a spec switches off
(`Disabled`) is normal. `blockhouse_operator_rollouts` has three for each pipeline.

What a page shows is of one moment, between two steps of the program; those who scrape at the same time get the same
page. [bench.md](bench.md#a-scrape) has what a scrape costs.
"""


@dataclass(frozen=True, slots=True)
class Family:
    """A metric as `# TYPE` has it; a counter's `name` is without `_total`."""

    program: str
    name: str
    type: str
    labels: tuple[str, ...]
    text: str

    @property
    def samples(self) -> tuple[str, ...]:
        """The names that a query may ask for."""
        return tuple(self.name + end for end in _SAMPLES[self.type])


def families() -> Sequence[Family]:
    """All of them, by program and name."""
    common = CollectorRegistry()
    process_figures(common)
    found = [
        *_registered("every program", common),
        *_registered("aggregator", Figures().registry),
        *_collected("verifier", VerifierFigures([])),
        *_collected("mirror", MirrorCollector(_idle_driver())),
        *_registered("operator", OperatorFigures().registry),
        *_collected("operator", LoopFigures(_idle_loop)),
    ]
    return sorted(found, key=lambda family: (_PROGRAMS.index(family.program), family.name))


_PROGRAMS = ("every program", "aggregator", "verifier", "mirror", "operator")


def _idle_driver() -> Any:
    """What the mirror's figures read of a driver; it has nothing to mirror."""
    rebalances = SimpleNamespace(moved=0, by_cause={})
    return SimpleNamespace(
        mirrored=SimpleNamespace(partitions=Partitions()),
        reports=SimpleNamespace(latency_sum=0.0, acknowledged=0),
        assigner=SimpleNamespace(
            assignment={}, quality=lambda: None, rebalances=rebalances, sampled_at=0.0, offending=()
        ),
        tasks=SimpleNamespace(running=()),
    )


def _idle_loop() -> Any:
    """What the operator's figures read of a loop; it has nothing to do."""

    class Queue:
        reconciles = failures = 0

        def __len__(self) -> int:
            return 0

        def overdue(self) -> float:
            return 0.0

    return SimpleNamespace(
        queue=Queue(),
        sick=lambda: "",
        watch_ages=dict,
        unread=frozenset({"billing"}),
        inventory=Inventory(),
        reassignments=SimpleNamespace(figures=dict),
    )


def _registered(program: str, registry: CollectorRegistry) -> Iterator[Family]:
    for collector in registry._collector_to_names:  # the client has the labels of a metric nowhere else
        metric: Any = collector
        if hasattr(metric, "_labelnames"):
            yield Family(program, metric._name, metric._type, tuple(metric._labelnames), metric._documentation)


def _collected(program: str, collector: Any) -> Iterator[Family]:
    for metric in collector.collect():
        yield Family(program, metric.name, metric.type, tuple(metric._labelnames), metric.documentation)


def _alerts() -> Mapping[str, list[str]]:
    """By name of a sample, the alerts that ask for it."""
    rules = [rule for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]]
    samples = {sample for family in families() for sample in family.samples}
    return {name: [rule["alert"] for rule in rules if name in rule["expr"]] for name in samples}


def _counts() -> str:
    by_program = Counter(family.program for family in families())
    each = ", ".join(f"{program} {by_program[program]}" for program in _PROGRAMS)
    return f"These are {by_program.total()} families of metrics: {each}.\n"


def render() -> str:
    """The page."""
    alerts, lines = _alerts(), [_INTRO, _counts()]
    for program in _PROGRAMS:
        lines += [
            f"## {program.capitalize()}",
            "",
            "| metric | type | labels | meaning | alert |",
            "|---|---|---|---|---|",
        ]
        for family in families():
            if family.program != program:
                continue
            name = family.name + ("_total" if family.type == "counter" else "_info" if family.type == "info" else "")
            labels = ", ".join(f"`{label}`" for label in family.labels)
            asked = sorted({alert for sample in family.samples for alert in alerts[sample]})
            links = ", ".join(f"[{alert}](alerts.md#{alert.lower()})" for alert in asked)
            lines.append(f"| `{name}` | {family.type} | {labels} | {family.text.rstrip('.')} | {links} |")
        lines.append("")
    return "\n".join(lines)


if __name__ == "__main__":
    PAGE.write_text(render())
