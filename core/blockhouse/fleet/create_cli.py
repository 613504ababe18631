"""`blockhouse topics create`: the topics of a pipeline, or any, in every Kafka cluster they are needed in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, assert_never

import typer
from rich.console import Console
from rich.table import Table

from blockhouse.config.endpoints import KafkaCluster
from blockhouse.config.load import load
from blockhouse.errors import BlockhouseError
from blockhouse.fleet import options as o
from blockhouse.fleet import topic_steps
from blockhouse.fleet.inputs import find_kafka
from blockhouse.fleet.kafka_admin import KafkaFleet
from blockhouse.fleet.topics import (
    AddPartitions,
    CreateTopic,
    DesiredTopic,
    SetConfig,
    TopicPlan,
    TopicStep,
    plan_topics,
)
from blockhouse.placement.model import InvalidInput, ReplicaSet


def create(
    partitions: Annotated[int, typer.Option(min=1, help="Partitions of each.")],
    topics: Annotated[
        list[str] | None, typer.Argument(help="Their names; default: the topic of --config and its dead letters'.")
    ] = None,
    replication: Annotated[int, typer.Option(min=1, help="Replicas of each partition.")] = 3,
    setting: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="A setting of the topics. Repeatable.")
    ] = None,
    bootstrap_server: o.BootstrapServer = None,
    config: o.ConfigFile = None,
    kafka_cluster: o.KafkaName = None,
    execute: Annotated[bool, typer.Option("--execute", help="Do it; without, only show what would be done.")] = False,
) -> None:
    """Create topics with their replicas in racks of their own, evenly over brokers and leaders.

    With --config in every Kafka cluster of the pipeline. What exists is kept: partitions and settings that are missing
    are added, none is removed and no replica is moved. Exit code 0: as asked for, 1: something is left to be done by
    hand, or a cluster did not answer.
    """
    names, settings = _names(topics, config), _settings(setting or ())
    desired = [DesiredTopic(name, partitions, replication, settings) for name in names]
    left = False
    for cluster in _clusters(bootstrap_server, config, kafka_cluster):
        try:
            left |= _create_in(cluster, desired, execute=execute)
        except BlockhouseError as error:  # one cluster holds up no other
            typer.echo(f"error: {error}", err=True)
            left = True
    if not execute:
        typer.echo("nothing was changed; --execute does it", err=True)
    if left:
        raise typer.Exit(1)


def _create_in(cluster: KafkaCluster, desired: Sequence[DesiredTopic], *, execute: bool) -> bool:
    """Whether something is left to be done by hand. Raises as `topic_steps.observe`."""
    names = [topic.name for topic in desired]
    with KafkaFleet(cluster) as fleet:
        seen = topic_steps.observe(fleet, names)
        for name in sorted(seen.unread):  # by itself, which raises the missing right
            topic_steps.observe(fleet, [name])
        plan = plan_topics(desired, seen)
        _show(cluster.name, names, plan)
        if execute and plan.steps:
            topic_steps.carry_out(fleet, plan.steps)
            typer.echo(f"cluster {cluster.name}: done", err=True)
    return bool(plan.faults)


def _names(topics: Sequence[str] | None, config: Path | None) -> tuple[str, ...]:
    if topics:
        return tuple(dict.fromkeys(topics))
    if config is None:
        raise InvalidInput(["a topic is missing; name it, or give --config"])
    kafka = load(config).kafka
    return kafka.topic, kafka.dead_letters


def _clusters(servers: str | None, config: Path | None, name: str | None) -> tuple[KafkaCluster, ...]:
    if config is not None and name is None and servers is None:
        return load(config).kafka.clusters
    cluster = find_kafka(servers, config, name)
    if cluster is None:
        raise InvalidInput(["a live cluster is missing; give --bootstrap-server, or --config"])
    return (cluster,)


def _settings(given: Sequence[str]) -> Mapping[str, str]:
    pairs = [text.partition("=") for text in given]
    wrong = [
        f"--set {''.join(pair)}: give NAME=VALUE, such as retention.ms=86400000" for pair in pairs if not all(pair)
    ]
    if wrong:
        raise InvalidInput(wrong)
    return {name: value for name, _, value in pairs}


def _show(cluster: str, names: Sequence[str], plan: TopicPlan) -> None:
    table = Table("cluster", "topic", "to do", "brokers of each partition", box=None)
    for step in plan.steps:
        table.add_row(cluster, step.topic, *_words(step))
    for name in names:
        if not any(step.topic == name for step in plan.steps):
            table.add_row(cluster, name, "nothing", "")
    Console().print(table)
    for fault in plan.faults:
        typer.echo(f"warning: cluster {cluster}: {fault}", err=True)


def _words(step: TopicStep) -> tuple[str, str]:
    match step:
        case CreateTopic():
            settings = "".join(f", {name}={value}" for name, value in step.config.items())
            return f"create with {step.partitions} partitions{settings}", _sets(step.sets)
        case AddPartitions():
            return f"add partitions up to {step.total}", _sets(step.sets)
        case SetConfig():
            return f"set {', '.join(f'{name}={value}' for name, value in step.config.items())}", ""
        case other:
            assert_never(other)


def _sets(sets: Sequence[ReplicaSet] | None) -> str:
    return " ".join(",".join(map(str, replicas)) for replicas in sets or ())
