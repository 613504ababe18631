"""What a driver gives a worker for one lease, and what it gets back. Both are pickled."""

from __future__ import annotations

from dataclasses import dataclass

from blockhouse.config.endpoints import KafkaCluster
from blockhouse.gate.client import GateAddress


@dataclass(frozen=True, slots=True)
class MirrorLease:
    """All a worker needs for one lease. Secrets are references: the worker reads them where it runs."""

    mirror: str
    task: str
    epoch: int
    number: int
    gate: GateAddress
    source: KafkaCluster
    target: KafkaCluster

    @property
    def group(self) -> str:
        """Names the lease's job in Spark."""
        return f"{self.mirror}/{self.task}#{self.number}"

    @property
    def title(self) -> str:
        return f"lease {self.number} of {self.task}"


@dataclass(slots=True)
class LeaseFigures:
    """What a lease did, for the log."""

    task: str
    records: int = 0
