"""Blockhouse as a contestant: one real aggregator process, warmed up by a message per stream for another table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from bench import dataset
from bench.dataset import ROWS_PER_MESSAGE, Dataset
from bench.loaders import Loader
from bench.processes import cpu_seconds
from bench.testbed import PARTITIONS, QUORUM, HiddenTopic, Testbed, table_headers
from blockhouse.config.endpoints import ZooKeeper
from blockhouse.schema.model import Revision
from blockhouse_aggregator.coordination.schema_store import SchemaStore
from blockhouse_aggregator.coordination.session import Session
from e2e.pipeline import AggregatorProcess, Pipeline, PipelineSpec

FIXED = {"growToBytes": "10Mi", "maxBytes": "10Mi"}
"""Blocks of 10 MiB, however far behind the stream is."""
WARM_TIMEOUT = 120.0

_PATIENT = {
    "kafka": {"sessionTimeout": "30s"},
    "quorum": {"timeout": "30s"},
    "zookeeper": {"sessionTimeoutSeconds": 30},
}
"""The machine may be busy: nothing here is about failures."""


class BlockhouseLoader(Loader):
    """The aggregator of replica r1, alone in its group. `blocks` overrides that section of its configuration;
    `checkout` is the folder of the source whose aggregator it is, this one by default."""

    def __init__(
        self,
        testbed: Testbed,
        data: Dataset,
        table: str,
        blocks: Mapping[str, Any],
        checkout: Path | None = None,
    ) -> None:
        super().__init__(testbed, data, table)
        self.topic = f"blockhouse-{table}"
        self._warm = f"warm_{table}"
        spec = PipelineSpec(
            name=table.replace("_", "-"),
            topic=self.topic,
            partitions=PARTITIONS,
            quorum=QUORUM,
            overrides={**_PATIENT, "blocks": dict(blocks)},
        )
        self._pipeline = Pipeline(testbed.stack, testbed.stack.folder / f"pipeline-{table}", spec)
        self._hidden: HiddenTopic | None = None
        if checkout is not None:
            self.aggregator.program = checkout.absolute() / ".venv" / "bin" / "blockhouse"

    @property
    def aggregator(self) -> AggregatorProcess:
        return self._pipeline.aggregators["r1"]

    @property
    def leader(self) -> int:
        """Pid of the aggregator's session."""
        pid = self.aggregator.pid
        assert pid is not None, f"the aggregator died, see {self.aggregator.log}"
        return pid

    def prepare(self) -> None:
        self.start(self.data.messages())

    def start(self, backlog: Iterable[bytes] | None = None) -> None:
        """Start the aggregator on a topic with a hidden backlog, and wait until it has stored the warming rows."""
        bed = self.testbed
        bed.create_topic(self.topic)
        bed.create_table(self._warm)
        self._write_schemas()
        bed.send(self.topic, islice(self.data.messages(), PARTITIONS), table_headers(self._warm))
        if backlog is not None:
            self._hidden = bed.hidden_topic(self.topic, backlog, table_headers(self.table))
        self.aggregator.start()
        self._pipeline.wait_for("warming up", lambda: self._counted() >= self._warming_rows, WARM_TIMEOUT)

    @property
    def _warming_rows(self) -> int:
        return PARTITIONS * ROWS_PER_MESSAGE

    def _write_schemas(self) -> None:
        """Write the tables into the schema history, as a rollout does: the aggregator knows them from its start."""
        config = self.aggregator.config["zookeeper"]
        session = Session(ZooKeeper(servers=config["servers"], root=config["root"]))
        session.connect()
        try:
            store = SchemaStore(session)
            for table in (self._warm, self.table):
                revision = dataset.history(f"default.{table}", names_topic=self.testbed.names_topic).current
                assert isinstance(revision, Revision)
                store.ensure_id(f"default.{table}")
                store.append(f"default.{table}", 0, revision)
        finally:
            session.close()

    def begin(self) -> None:
        assert self._hidden is not None, "there is no backlog"
        self._hidden.reveal()

    def stored(self) -> int:
        return self._counted() - self._warming_rows

    def _counted(self) -> int:
        return self.aggregator.counter("rows")

    def cpu(self) -> float | None:
        return cpu_seconds(self.leader)

    def close(self) -> None:
        self._pipeline.__exit__(None, None, None)
        self.testbed.drop_table(self._warm)
        self.testbed.delete_topic(self.topic)
