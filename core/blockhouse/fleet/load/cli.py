"""Show who writes how much to a Kafka cluster, measured without agents.

Nothing is changed in the cluster. What a source does not know is named, never made up.
"""

from __future__ import annotations

import difflib
import json
import random
import re
import time
from contextlib import closing
from dataclasses import replace
from typing import Annotated

import typer
from rich.console import Console

from blockhouse.config.endpoints import KafkaCluster
from blockhouse.errors import BlockhouseError, Retryable
from blockhouse.fleet import options as o
from blockhouse.fleet.inputs import find_kafka
from blockhouse.fleet.load import options as lo
from blockhouse.fleet.load.cluster import LiveNames, some_names
from blockhouse.fleet.load.sources import opened
from blockhouse.fleet.load.view import as_json, show_problems, show_rates, show_sample, show_sizing, summary
from blockhouse.load.history import LoadHistory, Window
from blockhouse.load.model import LoadSource, Sample
from blockhouse.load.sizing import Work, sizing
from blockhouse.placement.model import InvalidInput, TopicPartition

DEFAULT_RATE = 50 * 1024.0
JITTER = 0.1
Between = Annotated[
    float, typer.Option("--window", min=1, help="Sampled: seconds between the two looks that make a rate.")
]
Limit = Annotated[int, typer.Option(min=0, help="Rows shown, the busiest first; 0: all.")]

app = typer.Typer(no_args_is_help=True, help="Show who writes how much to a Kafka cluster, measured without agents.")


@app.command(
    epilog="Examples:\n\n"
    "  blockhouse load show --bootstrap-server kafka:9092\n\n"
    "  blockhouse load show --bootstrap-server kafka:9092 --topics 'events-.*' --window 60 --json\n\n"
    "  blockhouse load show --bootstrap-server kafka:9092 --prometheus-url http://prometheus:9090 --preset strimzi"
)
def show(
    bootstrap_server: o.BootstrapServer = None,
    config: o.ConfigFile = None,
    kafka_cluster: o.KafkaName = None,
    source: lo.Source = None,
    source_config: lo.SourceConfig = None,
    prometheus_url: lo.PrometheusUrl = None,
    preset: lo.Preset = None,
    file: lo.LoadFile = None,
    groups: lo.Groups = True,
    topics: o.Topics = None,
    topics_exclude: o.TopicsExclude = None,
    window: Between = 10.0,
    limit: Limit = 20,
    as_json_: Annotated[bool, typer.Option("--json", help="Print the whole sample as JSON.")] = False,
) -> None:
    """Print what each broker sends and receives, and the partitions that are written to most.

    The source `sampled` needs nothing but the cluster: it reads offsets and sizes twice, --window seconds apart.
    """
    settings = lo.chosen(source, source_config, prometheus_url, preset, file)
    with opened(settings, find_kafka(bootstrap_server, config, kafka_cluster), groups=groups) as found:
        sample = _first(found, window)
    sample = _only(sample, topics or (), topics_exclude or ())
    if as_json_:
        typer.echo(json.dumps(as_json(sample, time.time()), indent=2))
    else:
        show_sample(Console(), sample, time.time(), limit)


@app.command(
    epilog="Examples:\n\n"
    "  blockhouse load watch --bootstrap-server kafka:9092 --every 60\n\n"
    "  blockhouse load watch --bootstrap-server kafka:9092 --topics 'events-.*' --limit 5"
)
def watch(
    bootstrap_server: o.BootstrapServer = None,
    config: o.ConfigFile = None,
    kafka_cluster: o.KafkaName = None,
    source: lo.Source = None,
    source_config: lo.SourceConfig = None,
    prometheus_url: lo.PrometheusUrl = None,
    preset: lo.Preset = None,
    file: lo.LoadFile = None,
    groups: lo.Groups = True,
    topics: o.Topics = None,
    topics_exclude: o.TopicsExclude = None,
    every: Annotated[float, typer.Option(min=1, help="Seconds between samples; 30 or more on a large cluster.")] = 30.0,
    count: Annotated[int, typer.Option(min=0, help="Samples to take; 0: until Ctrl-C.")] = 0,
    limit: Limit = 10,
) -> None:
    """Print a sample every --every seconds. A source that does not answer is reported, and asked again next time."""
    settings = lo.chosen(source, source_config, prometheus_url, preset, file)
    console, taken = Console(), 0
    with opened(settings, find_kafka(bootstrap_server, config, kafka_cluster), groups=groups) as found:
        try:
            while not count or taken < count:
                sample = _reported(found)
                if sample is not None:
                    taken += 1
                    console.rule(time.strftime("%H:%M:%S"))
                    show_sample(console, _only(sample, topics or (), topics_exclude or ()), time.time(), limit)
                if not count or taken < count:
                    time.sleep(every * random.uniform(1 - JITTER, 1 + JITTER))
        except KeyboardInterrupt:
            raise typer.Exit(130) from None


@app.command(
    epilog="Examples:\n\n"
    "  blockhouse load explain clicks --bootstrap-server kafka:9092\n\n"
    "  blockhouse load explain clicks --bootstrap-server kafka:9092 --prometheus-url http://prometheus:9090"
)
def explain(
    topic: Annotated[str, typer.Argument(help="The topic's name.")],
    bootstrap_server: o.BootstrapServer = None,
    config: o.ConfigFile = None,
    kafka_cluster: o.KafkaName = None,
    source: lo.Source = None,
    source_config: lo.SourceConfig = None,
    prometheus_url: lo.PrometheusUrl = None,
    preset: lo.Preset = None,
    file: lo.LoadFile = None,
    window: Between = 10.0,
) -> None:
    """Print the rate of each partition of a topic with where it comes from, how old it is, and what is missing."""
    settings = lo.chosen(source, source_config, prometheus_url, preset, file)
    kafka = find_kafka(bootstrap_server, config, kafka_cluster)
    with opened(settings, kafka, groups=False) as found:
        sample = _first(found, window)
    counts = _counts(sample) if kafka is None else _live_counts(kafka)
    partitions = [TopicPartition(topic, number) for number in range(counts.get(topic, 0))]
    if not partitions:
        raise InvalidInput([_unknown(topic, sample, counts)])
    history = LoadHistory()
    history.add(sample)
    console, now = Console(), time.time()
    show_rates(console, topic, history.rates(partitions, Window(), now, DEFAULT_RATE, counts))
    show_problems(console, sample)
    console.print(summary(sample, now), markup=False, soft_wrap=True)


@app.command(
    epilog="Examples:\n\n"
    "  blockhouse load plan --bootstrap-server kafka:9092 --topics 'events-.*' --replicas 3 --rows-per-message 10\n\n"
    "  blockhouse load plan --file rates.yaml --replicas 2"
)
def plan(
    bootstrap_server: o.BootstrapServer = None,
    config: o.ConfigFile = None,
    kafka_cluster: o.KafkaName = None,
    source: lo.Source = None,
    source_config: lo.SourceConfig = None,
    prometheus_url: lo.PrometheusUrl = None,
    preset: lo.Preset = None,
    file: lo.LoadFile = None,
    topics: o.Topics = None,
    topics_exclude: o.TopicsExclude = None,
    window: Between = 30.0,
    replicas: Annotated[int, typer.Option(min=1, help="Replicas of a topic's shard.")] = 2,
    rows_per_message: Annotated[float, typer.Option(min=0.001, help="Rows in a message, in the mean.")] = 1.0,
    cpu: Annotated[
        float, typer.Option("--cpu-per-million-rows", min=0.001, help="CPU seconds an aggregator spends on them.")
    ] = 2.0,
    tables: Annotated[int, typer.Option(min=1, help="Tables that a topic carries.")] = 1,
) -> None:
    """Print how many cores and how much memory the aggregators of these topics need. Advice: nothing is changed.

    It is as good as its sample: take one at the busiest time, with a long --window.
    """
    settings = lo.chosen(source, source_config, prometheus_url, preset, file)
    kafka = find_kafka(bootstrap_server, config, kafka_cluster)
    with opened(settings, kafka, groups=False) as found:
        sample = _only(_first(found, window), topics or (), topics_exclude or ())
    counts = _counts(sample) if kafka is None else _live_counts(kafka)
    named = {key.topic for key in sample.partitions} | sample.topics.keys()
    keys = [TopicPartition(topic, n) for topic in sorted(named) for n in range(counts.get(topic, 0))]
    history = LoadHistory()
    history.add(sample)
    console, now = Console(), time.time()
    rates = history.rates(keys, Window(), now, DEFAULT_RATE, counts)
    show_sizing(console, sizing(rates, replicas, Work(cpu, rows_per_message, tables)), replicas)
    show_problems(console, sample)
    console.print(summary(sample, now), markup=False, soft_wrap=True)


def _first(source: LoadSource, window: float) -> Sample:
    """The first sample a source has; one that compares two looks gets `window` seconds between them."""
    sample = source.sample()
    if sample is None:
        typer.echo(f"looking twice, {window:g} s apart ...", err=True)
        time.sleep(window)
        sample = source.sample()
    if sample is None:
        raise BlockhouseError("the address led to two different clusters in a row; check --bootstrap-server")
    return sample


def _reported(source: LoadSource) -> Sample | None:
    """The next sample; None, and a line on standard error, when the source does not answer."""
    try:
        return source.sample()
    except Retryable as error:
        typer.secho(f"{time.strftime('%H:%M:%S')} no sample: {error}", fg=typer.colors.YELLOW, err=True)
        return None


def _only(sample: Sample, include: list[str] | tuple[()], exclude: list[str] | tuple[()]) -> Sample:
    """The sample with the topics asked for; an expression that matches nothing is an error that shows names."""
    names = {key.topic for key in sample.partitions} | sample.topics.keys()
    chosen = {name for name in names if not include or _matches(name, include)}
    chosen -= {name for name in chosen if exclude and _matches(name, exclude)}
    if include and not chosen:
        raise InvalidInput(
            [f"no topic matches {', '.join(include)}; source {sample.source} has {some_names(names) or 'no topic'}"]
        )
    return replace(
        sample,
        partitions={key: load for key, load in sample.partitions.items() if key.topic in chosen},
        topics={topic: load for topic, load in sample.topics.items() if topic in chosen},
    )


def _matches(name: str, expressions: list[str] | tuple[()]) -> bool:
    try:
        return any(re.fullmatch(expression, name) for expression in expressions)
    except re.error as error:
        raise InvalidInput([f"{error.pattern!r} is not an expression: {error}"]) from None


def _live_counts(kafka: KafkaCluster) -> dict[str, int]:
    with closing(LiveNames(kafka)) as names:
        return dict(names.names().counts)


def _counts(sample: Sample) -> dict[str, int]:
    """Partitions by topic as far as a source without a cluster knows."""
    counts = dict.fromkeys(sample.topics, 1)
    for key in sample.partitions:
        counts[key.topic] = max(counts.get(key.topic, 0), key.partition + 1)
    return counts


def _unknown(topic: str, sample: Sample, counts: dict[str, int]) -> str:
    close = difflib.get_close_matches(topic, counts, n=3)
    hint = f"did you mean {', '.join(close)}?" if close else f"it has {some_names(counts) or 'no topic at all'}"
    named = {key.topic for key in sample.partitions} | sample.topics.keys()
    return f"the cluster has no topic {topic}: {hint} Source {sample.source} names {some_names(named) or 'no topic'}"
