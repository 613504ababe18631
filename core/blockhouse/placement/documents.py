"""The JSON documents that plans are computed from and written to, checked on the way in. Text in, values out: no files.

The map is the format of Kafka's own kafka-reassign-partitions tool, so plans and maps can be exchanged with it.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Annotated, Literal, TypeVar

from pydantic import BaseModel, Field, TypeAdapter, ValidationError

from blockhouse.placement.model import Broker, InvalidInput, PartitionMap, Sizes, TopicPartition, brokers_by_id

BrokerId = Annotated[int, Field(ge=0)]
Bytes = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class _Assignment(BaseModel):
    topic: str = Field(min_length=1)
    partition: int = Field(ge=0)
    replicas: list[BrokerId]


class _Reassignment(BaseModel):
    version: Literal[1] = 1
    partitions: list[_Assignment]


class _Broker(BaseModel):
    id: BrokerId
    rack: str | None = None
    storage_free: Annotated[float, Field(allow_inf_nan=False)] | None = None


T = TypeVar("T")


def _parse(adapter: TypeAdapter[T], text: str, what: str) -> T:
    try:
        return adapter.validate_json(text)
    except ValidationError as wrong:
        raise InvalidInput(
            f"{what}: {'.'.join(map(str, error['loc'])) or 'the document'}: {error['msg']}" for error in wrong.errors()
        ) from wrong


def parse_map(text: str, what: str = "the partition map") -> PartitionMap:
    """A kafka-reassign-partitions document. `what` names it in InvalidInput, which lists every problem."""
    document = _parse(TypeAdapter(_Reassignment), text, what)
    keys = [TopicPartition(item.topic, item.partition) for item in document.partitions]
    problems = [f"{what}: {key} comes {count} times; give it once" for key, count in Counter(keys).items() if count > 1]
    if not keys:
        problems.append(f"{what} is empty: there is nothing to plan")
    if problems:
        raise InvalidInput(problems)
    return PartitionMap(dict(zip(keys, (item.replicas for item in document.partitions), strict=True)))


def render_map(current: PartitionMap) -> str:
    """The map as a kafka-reassign-partitions document, one partition a line."""
    lines = ",\n".join(
        "  " + json.dumps({"topic": key.topic, "partition": key.partition, "replicas": list(replicas)})
        for key, replicas in current.items()
    )
    return f'{{"version": 1, "partitions": [\n{lines}\n]}}\n'


def parse_cluster(text: str, what: str = "the cluster") -> dict[int, Broker]:
    """A list of {id, rack, storage_free} (bytes; rack and storage_free may be missing)."""
    found = _parse(TypeAdapter(list[_Broker]), text, what)
    return brokers_by_id(Broker(item.id, item.rack or "", item.storage_free) for item in found)


def render_cluster(brokers: Iterable[Broker]) -> str:
    """The inverse of `parse_cluster`."""
    return json.dumps([{"id": b.id, "rack": b.rack, "storage_free": b.free} for b in brokers], indent=1) + "\n"


def parse_sizes(text: str, what: str = "the sizes") -> dict[TopicPartition, float]:
    """An object {topic: {partition: bytes}}."""
    found = _parse(TypeAdapter(dict[str, dict[Annotated[int, Field(ge=0)], Bytes]]), text, what)
    return {
        TopicPartition(topic, number): size
        for topic, partitions in found.items()
        for number, size in partitions.items()
    }


def render_sizes(sizes: Sizes) -> str:
    """The inverse of `parse_sizes`."""
    topics: dict[str, Mapping[str, float]] = {}
    for key in sorted(sizes):
        topics[key.topic] = {**topics.get(key.topic, {}), str(key.partition): sizes[key]}
    return json.dumps(topics, indent=1) + "\n"


def parse_broker_ids(text: str) -> tuple[int, ...]:
    """Ids as in "1001,1002". Raises InvalidInput naming what is no id, or comes twice."""
    words = [word.strip() for word in text.split(",")]
    problems = [
        f"broker list: {word!r} is not a broker id; give ids as 1001,1002" for word in words if not word.isdecimal()
    ]
    problems += [
        f"broker list: {word} comes twice; list each broker once" for word, n in Counter(words).items() if n > 1
    ]
    if problems:
        raise InvalidInput(problems)
    return tuple(int(word) for word in words)
