"""Load from a file: for tests, for sizing what does not exist yet, and where measuring is not allowed.

clusterId: abc                       # optional: any cluster
partitions: {clicks: {0: {bytes: 10M, messages: 5000}, 1: {bytes: 50Ki}}}
topics: {orders: {bytes: 2Mi}}       # of the whole topic
brokers: {1: {tx: 80M, rx: 40M}}
"""

from __future__ import annotations

import time
from pathlib import Path

import yaml
from pydantic import Field, ValidationError

from blockhouse.config.base import Settings
from blockhouse.errors import Permanent
from blockhouse.fleet.load.settings import ByteRate, StaticSettings
from blockhouse.load.model import BrokerLoad, PartitionLoad, Quality, Sample
from blockhouse.placement.model import TopicPartition


class _Load(Settings):
    bytes: ByteRate
    messages: float | None = Field(default=None, ge=0, allow_inf_nan=False)

    def value(self) -> PartitionLoad:
        return PartitionLoad(self.bytes, self.messages, Quality.ESTIMATED)


class _Broker(Settings):
    tx: ByteRate | None = None
    rx: ByteRate | None = None
    moved_out: ByteRate | None = None
    moved_in: ByteRate | None = None

    def value(self) -> BrokerLoad:
        return BrokerLoad(self.tx, self.rx, self.moved_out, self.moved_in, Quality.ESTIMATED)


class _Document(Settings):
    cluster_id: str = ""
    window: float = Field(default=60.0, gt=0)
    partitions: dict[str, dict[int, _Load]] = {}
    topics: dict[str, _Load] = {}
    brokers: dict[int, _Broker] = {}


class StaticSource:
    """A `LoadSource`. The file is read at each sample, so that it may be edited meanwhile."""

    name = "static"

    def __init__(self, settings: StaticSettings) -> None:
        self._file = settings.file

    def sample(self) -> Sample:
        """Raises Permanent naming everything that is wrong with the file."""
        document = _read(self._file)
        return Sample(
            cluster_id=document.cluster_id,
            source=self.name,
            at=time.time(),
            window=document.window,
            partitions={
                TopicPartition(topic, number): load.value()
                for topic, loads in document.partitions.items()
                for number, load in loads.items()
            },
            topics={topic: load.value() for topic, load in document.topics.items()},
            brokers={id: load.value() for id, load in document.brokers.items()},
        )


def _read(file: Path) -> _Document:
    try:
        return _Document.model_validate(yaml.safe_load(file.read_text(encoding="utf-8")) or {})
    except ValidationError as error:
        problems = "; ".join(f"{'.'.join(map(str, found['loc']))}: {found['msg']}" for found in error.errors())
        raise Permanent(f"load file {file}: {problems}", reason="InvalidLoadFile") from None
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise Permanent(f"load file {file} cannot be read: {error}", reason="InvalidLoadFile") from None
