"""What a plan is computed from, gathered from files or from a live cluster: the same values either way."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from blockhouse.config.endpoints import KafkaCluster
from blockhouse.config.load import load
from blockhouse.fleet.kafka_admin import KafkaFleet
from blockhouse.fleet.model import Fleet
from blockhouse.placement.documents import parse_broker_ids, parse_cluster, parse_map, parse_sizes
from blockhouse.placement.model import Broker, InvalidInput, PartitionMap, TopicPartition
from blockhouse.placement.topics import select_topics


@dataclass(frozen=True, slots=True)
class Inputs:
    """Everything a planner asks for; `sizes` is empty when they were not measured."""

    current: PartitionMap
    cluster: Mapping[int, Broker]
    brokers: tuple[int, ...]
    sizes: Mapping[TopicPartition, float]


@dataclass(frozen=True, slots=True)
class Sources:
    """Where the inputs come from: files come before what the cluster reports."""

    map_file: Path | None = None
    cluster_file: Path | None = None
    sizes_file: Path | None = None
    brokers: str | None = None
    topics: tuple[str, ...] = ()
    topics_exclude: tuple[str, ...] = ()


def gather(sources: Sources, fleet: Fleet | None) -> Inputs:
    """Read files, and the cluster for what no file gives. Raises InvalidInput naming every missing or wrong piece.

    Without a broker list every live broker is a target.
    """
    if fleet is None:
        missing = [
            f"{option} is missing; give the file, or a live cluster with --bootstrap-server"
            for option, file in (("--map", sources.map_file), ("--cluster", sources.cluster_file))
            if file is None
        ]
        if missing:
            raise InvalidInput(missing)
    current = _current(sources, fleet)
    cluster, sizes = _measured(sources, fleet)
    brokers = tuple(cluster) if sources.brokers is None else parse_broker_ids(sources.brokers)
    return Inputs(select_topics(current, sources.topics, sources.topics_exclude), cluster, brokers, sizes)


def read_plan(file: Path) -> PartitionMap:
    """A plan (or any kafka-reassign-partitions document) from a file."""
    return parse_map(read_text(file), str(file))


def read_text(file: Path) -> str:
    """The file's text. Raises InvalidInput that states why it cannot be read."""
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput([f"{file}: cannot be read: {error}"]) from error


def connected(bootstrap_servers: str | None, config: Path | None, name: str | None) -> KafkaFleet | None:
    """The live cluster asked for, to be used as a context manager; None when none was."""
    cluster = find_kafka(bootstrap_servers, config, name)
    return KafkaFleet(cluster) if cluster else None


def find_kafka(bootstrap_servers: str | None, config: Path | None, name: str | None) -> KafkaCluster | None:
    """The live cluster asked for: by address, or by name out of an aggregator's configuration (for TLS and SASL)."""
    if config is None:
        return KafkaCluster(name="kafka", bootstrap_servers=bootstrap_servers) if bootstrap_servers else None
    clusters = {cluster.name: cluster for cluster in load(config).kafka.clusters}
    if name is None and len(clusters) == 1:
        name = next(iter(clusters))
    if name not in clusters:
        raise InvalidInput(
            [f"{config} describes Kafka clusters {', '.join(clusters)}; choose one with --kafka-cluster"]
        )
    chosen = clusters[name]
    return chosen.model_copy(update={"bootstrap_servers": bootstrap_servers}) if bootstrap_servers else chosen


def _current(sources: Sources, fleet: Fleet | None) -> PartitionMap:
    if sources.map_file is not None:
        return parse_map(read_text(sources.map_file), str(sources.map_file))
    assert fleet is not None
    found = PartitionMap({key: state.replicas for key, state in fleet.partitions().items()})
    if not found:
        raise InvalidInput(["the cluster has no topic: there is nothing to plan"])
    moving = [key for key in fleet.moves() if key in found]
    if moving:
        shown = ", ".join(map(str, moving[:5])) + (", ..." if len(moving) > 5 else "")
        raise InvalidInput([f"partitions are being reassigned now ({shown}); wait for it, or cancel it, then plan"])
    return found


def _measured(sources: Sources, fleet: Fleet | None) -> tuple[dict[int, Broker], Mapping[TopicPartition, float]]:
    sizes = (
        parse_sizes(read_text(sources.sizes_file), str(sources.sizes_file)) if sources.sizes_file is not None else None
    )
    if sources.cluster_file is not None:
        cluster = parse_cluster(read_text(sources.cluster_file), str(sources.cluster_file))
        if sizes is None:
            sizes = dict(fleet.storage().sizes) if fleet is not None else {}
        return cluster, sizes
    assert fleet is not None
    storage = fleet.storage()
    cluster = {id: replace(broker, free=storage.free.get(id)) for id, broker in fleet.brokers().items()}
    return cluster, storage.sizes if sizes is None else sizes
