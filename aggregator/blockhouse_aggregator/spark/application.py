"""The Spark application of one aggregator."""

from __future__ import annotations

from blockhouse.config.pipeline import Spark
from blockhouse.spark.session import SparkApplication
from blockhouse_aggregator.spark import daemon
from blockhouse_aggregator.spark.task import LeaseFigures, LeaseSpec, run_leases


class StreamApplication(SparkApplication[LeaseSpec, LeaseFigures]):
    """Runs leases of streams. Blocking; call from threads."""

    def __init__(self, config: Spark, name: str) -> None:
        """Raises SparkNotStarted."""
        super().__init__(config, name, run_leases, daemon.__name__)
