"""What a cluster consists of, as one value that survives in its folder; it knows nothing of processes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from blockhouse.errors import BlockhouseError


class ClusterError(BlockhouseError):
    """The cluster or one of its programs could not be started, or refused what it was asked."""


@dataclass(frozen=True)
class Zone:
    """KWOK nodes that share the label `topology.kubernetes.io/zone`. ValueError for fewer than no nodes."""

    name: str
    nodes: int = 2

    def __post_init__(self) -> None:
        if self.nodes < 0:
            raise ValueError(f"zone {self.name} needs nodes >= 0, not {self.nodes}")


@dataclass(frozen=True)
class ClusterSpec:
    """Shape of a cluster. The default has the two zones of `examples/`."""

    zones: tuple[Zone, ...] = (Zone("dc-a"), Zone("dc-b"))
    """Fake nodes; none for a cluster whose nodes are real."""
    address: str = "127.0.0.1"
    """Where the API server listens; pods of real nodes must reach it."""
    audit: bool = True
    """Write every request to `audit.log`."""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> ClusterSpec:
        return cls(**{**value, "zones": tuple(Zone(**zone) for zone in value["zones"])})
