"""The servers of rollouts under load: a shard with an aggregator per replica, its operator, a verifier.

Columns are added to one of its tables, again and again, while two others continue to be loaded.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

from blockhouse.config.endpoints import ZooKeeper
from blockhouse.schema.model import TableHistory
from blockhouse_aggregator.audit import AuditReport
from blockhouse_aggregator.audit import run as run_audit
from blockhouse_aggregator.coordination.schema_store import SchemaStore
from blockhouse_aggregator.coordination.session import Session
from blockhouse_operator.api.conditions import Reason
from blockhouse_operator.api.rollout import ShardRollout
from e2e.kit.tables import CLICKS
from e2e.kit.tally import Tally
from e2e.pipeline import Pipeline, PipelineSpec, VerifierProcess, verifier_of
from e2e.rollouts.process import RolloutOperator
from e2e.rollouts.site import Desired, site_of
from e2e.stack import Stack, StackSpec
from e2e.stack.process import wait_until
from e2e.stack.server import Server, StackError

CHANGED, OTHERS = "default.clicks", ("default.orders", "default.payments")
TABLES = (CHANGED, *OTHERS)
COLUMNS = {
    CHANGED: ", ".join(f"{name} {type_}" for name, type_ in CLICKS),
    "default.orders": "id UInt64, at DateTime, total Decimal(18, 2)",
    "default.payments": "id UInt64, method String, amount Float64",
}
SETTINGS: Mapping[str, Any] = {
    "quorum": {"timeout": "10s"},
    "kafka": {"commitTimeout": "5s"},
    "handoverAfter": "5s",
    "shutdownBudget": "15s",
    "logLevel": "debug",  # every block when it is stored
}
MERGE_TREE = {"old_parts_lifetime": "60"}
"""Parts that were merged stay for eight minutes otherwise: 14 GB of this load, perhaps in memory."""
START_TIMEOUT, AUDIT_WAIT = 600.0, 180.0


def added(number: int) -> tuple[str, str]:
    """What the `number`-th change adds: a column with a constant and one with an expression as DEFAULT."""
    return f"seven_{number} UInt32 DEFAULT 7", f"loud_{number} String DEFAULT upper(page)"


class Stage:
    """Everything that runs. A context manager: nothing outlives it.

    With `faults`, aggregators can be ordered to die at a point of their work.
    """

    def __init__(
        self, folder: Path, replicas: int, rollout: ShardRollout, *, block_age: float = 1.0, faults: bool = False
    ) -> None:
        """`block_age` is how long rows are gathered, in seconds."""
        self.rollout = rollout
        self.manifest = folder / "manifest.jsonl"
        servers = StackSpec(replicas=replicas, clickhouse_zk_timeout_ms=6_000, merge_tree=MERGE_TREE)
        self.stack = Stack(folder / "stack", servers)
        settings = {**SETTINGS, "blocks": {"maxAge": f"{block_age:g}s"}, "faults": {"enabled": faults}}
        spec = PipelineSpec(name="rollout", partitions=replicas, overrides=settings)
        self.pipeline = Pipeline(self.stack, folder, spec)
        self.operator = RolloutOperator(folder / "operator", site_of(self.pipeline))
        self.verifier: VerifierProcess = verifier_of(self.pipeline)
        self.servers: dict[str, Server] = {"operator": self.operator, "verifier": self.verifier}
        self.servers |= {f"aggregator-{name}": process for name, process in self.pipeline.aggregators.items()}
        self.servers |= {f"clickhouse-{server.replica}": server for server in self.stack.clickhouse.values()}
        self.tally = Tally()
        """Of all loads: an aggregator that lives through several of them counts on."""
        self.changes = 0
        """How many changes have been declared."""
        self.rows = 0
        """Rows that brokers have acknowledged, in all loads so far."""
        self._exits = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as exits:
            exits.enter_context(self.stack)
            exits.enter_context(self.pipeline)
            exits.callback(self.operator.kill)
            exits.callback(self.verifier.kill)
            self._start()
            root = self.pipeline.root
            self._session = exits.enter_context(Session(ZooKeeper(servers=self.stack.zookeeper.connect, root=root)))
            self._exits = exits.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._exits.close()

    def _start(self) -> None:
        """Aggregators, verifier, and an operator that has created the tables."""
        self.pipeline.create_topic()
        self.verifier.start(wait=False)
        self.pipeline.start()
        self._want()
        self.operator.start()
        wait("every table created", self.settled, START_TIMEOUT)

    def change(self) -> None:
        """Declare two more columns of the changed table."""
        self.changes += 1
        self._want()

    def alter_behind(self) -> None:
        """Add the columns of the next change without a rollout."""
        columns = ", ".join(f"ADD COLUMN {column}" for column in added(self.changes + 1))
        self.stack.clickhouse[1, 1].execute(f"ALTER TABLE {CHANGED} {columns}")

    def _want(self) -> None:
        more = [column for number in range(1, self.changes + 1) for column in added(number)]
        ddl = {}
        for table in TABLES:
            columns = ", ".join([COLUMNS[table], *(more if table == CHANGED else ())])
            ddl[table] = f"CREATE TABLE {table} ({columns}) ENGINE = MergeTree ORDER BY id"
        self.operator.want(Desired(generation=1 + self.changes, tables=ddl, rollout=self.rollout))

    def settled(self) -> bool:
        """The operator has found every table as it is declared now."""
        status = self.operator.record().status
        states = {table.state for table in status.tables}
        return status.observed_generation == 1 + self.changes and states == {Reason.AS_SPECIFIED.value}

    def history(self, table: str) -> TableHistory:
        """The recorded schema of one of TABLES."""
        history = SchemaStore(self._session).get(table)
        if history is None or history.current is None:
            raise StackError(f"no aggregator has recorded the schema of {table}")
        return history

    def audit(self) -> AuditReport:
        """Every row of every load so far, on every replica."""
        return run_audit(self.pipeline.audit_spec(self.manifest, AUDIT_WAIT))

    def crashes(self) -> list[str]:
        """Internal errors in the logs of all lives of all aggregators."""
        return [
            f"{replica}: {line.get('error')}"
            for replica, aggregator in self.pipeline.aggregators.items()
            for line in aggregator.logged("aggregator.failed")
        ]


def wait(what: str, condition: Callable[[], bool], timeout: float) -> None:
    """Poll until the condition holds; StackError naming `what` when in vain."""
    if not wait_until(condition, timeout=timeout, interval=0.2):
        raise StackError(f"{what}: not within {timeout:g} s")
