"""The contestants: the limit that ClickHouse sets, Blockhouse, the plain loop, and ClickHouse's own Kafka engine.

Each prepares until only the load is left to do, waits, loads on command and reports how many rows are stored for good.
"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from confluent_kafka import Consumer, KafkaException, TopicPartition

from bench import dataset
from bench.dataset import Dataset
from bench.processes import cpu_seconds
from bench.testbed import FIRST_OFFSET, PARTITIONS, QUORUM, HiddenTopic, Testbed, table_headers
from e2e.stack.process import session_members, wait_until
from e2e.stack.server import StackError

READY_TIMEOUT = 120.0
_NUMBERS = [name for name, type_ in dataset.PROVENANCE.items() if type_ != "String"]


class Loader(ABC):
    """One run of one contestant into one table. A context manager: nothing of it runs afterwards."""

    exact = True
    """Every row is stored once when nothing fails; else it may be stored more often."""

    def __init__(self, testbed: Testbed, data: Dataset, table: str) -> None:
        self.testbed = testbed
        self.data = data
        self.table = table

    @abstractmethod
    def prepare(self) -> None:
        """Everything before the clock starts."""

    @abstractmethod
    def begin(self) -> None:
        """Start to load; returns at once."""

    @abstractmethod
    def stored(self) -> int:
        """Rows that are stored and acknowledged by now."""

    @abstractmethod
    def cpu(self) -> float | None:
        """CPU seconds of the loader so far; None when it cannot be separated from the server's."""

    @abstractmethod
    def close(self) -> None:
        """End it, whatever its state."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Program:
    """A process in a session of its own, which prints `ready` and then `stored N` after each insert."""

    def __init__(self, command: Sequence[str]) -> None:
        self.stored = 0
        self._dying = False
        self._name = shlex.join(command)
        self._ready = threading.Event()
        self._process = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", "--", *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
            cwd=Path(__file__).parents[1],
        )
        threading.Thread(target=self._listen, name="program-output", daemon=True).start()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("stored "):
                self.stored += int(line.split()[1])
            elif line.startswith("ready"):
                self._ready.set()

    def wait_ready(self) -> None:
        if not self._ready.wait(READY_TIMEOUT):
            raise StackError(f"{self._name} was not ready within {READY_TIMEOUT:g} s")

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    @property
    def ready(self) -> bool:
        """It runs, and has reported that it is ready."""
        return self._ready.is_set() and self.running

    @property
    def died_before_commit(self) -> bool:
        """It died of `die_before_commit`."""
        return self._process.poll() == -signal.SIGKILL and self._dying

    def die_before_commit(self) -> None:
        """Make a plain loop kill itself between its next insert and its commit."""
        if not self._dying:
            self._dying = True
            self._process.send_signal(signal.SIGUSR1)

    def send(self, word: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(word + "\n")
        self._process.stdin.flush()

    def check(self) -> None:
        """Raises StackError when it has ended by itself."""
        if self._process.poll() is not None:
            raise StackError(f"{self._name} ended with code {self._process.returncode}")

    def cpu(self) -> float:
        return cpu_seconds(self._process.pid)

    def kill(self) -> None:
        for pid in session_members(self._process.pid):
            os.kill(pid, signal.SIGKILL)
        self._process.wait()


class Limit(Loader):
    """clickhouse-client sends the very blocks Blockhouse makes, from a file: ClickHouse's own speed.

    One INSERT, its blocks not squashed: each becomes a part with a quorum round of its own, and the client starts once.
    """

    def __init__(self, testbed: Testbed, data: Dataset, table: str, blocks: Path) -> None:
        super().__init__(testbed, data, table)
        self._blocks = blocks

    def prepare(self) -> None:
        host, port = self.testbed.first_replica
        topic = dataset.TOPIC if self.testbed.names_topic else {}
        names = ", ".join((*dataset.COLUMNS, *dataset.PROVENANCE, *topic))
        client = ["clickhouse-client", "--host", host, "--port", str(port), f"--insert_quorum={QUORUM}"]
        client += ["--insert_quorum_timeout=60000", "--min_insert_block_size_rows=0", "--min_insert_block_size_bytes=0"]
        client += ["--query", f"INSERT INTO {self.table} ({names}) FORMAT Native"]
        insert = f"{shlex.join(client)} < {shlex.quote(str(self._blocks))}"
        # The shell stays, so that the client's CPU time remains to be read when it has ended.
        self._program = Program(
            ["sh", "-c", f"echo ready; read go; {insert} && echo stored {self.data.rows}; read end"]
        )
        self._program.wait_ready()

    def begin(self) -> None:
        self._program.send("go")

    def stored(self) -> int:
        self._program.check()
        return self._program.stored

    def cpu(self) -> float | None:
        return self._program.cpu()

    def close(self) -> None:
        self._program.kill()


class PlainLoop(Loader):
    """`bench.plain_loop`, a process per partition."""

    def prepare(self) -> None:
        bed, name = self.testbed, f"loop-{self.table}"
        bed.create_topic(name)
        warm = [b""] * PARTITIONS * FIRST_OFFSET
        bed.send(name, warm, {})
        self._topic: HiddenTopic = bed.hidden_topic(name, self.data.messages(), table_headers(self.table))
        host, port = bed.first_replica
        lock = str(bed.stack.folder / "loop.lock")
        command = [sys.executable, "-m", "bench.plain_loop", bed.bootstrap, name]
        rest = [str(FIRST_OFFSET), host, str(port), self.table, str(QUORUM), lock]
        self._programs = [Program([*command, str(partition), *rest]) for partition in range(PARTITIONS)]
        for program in self._programs:
            program.wait_ready()

    def begin(self) -> None:
        self._topic.reveal()

    def stored(self) -> int:
        for program in self._programs:
            program.check()
        return sum(program.stored for program in self._programs)

    def cpu(self) -> float | None:
        return sum(program.cpu() for program in self._programs)

    def close(self) -> None:
        for program in getattr(self, "_programs", []):
            program.kill()
        self.testbed.delete_topic(f"loop-{self.table}")


class KafkaEngine(Loader):
    """A Kafka table and a materialized view on one replica: JSON, no quorum, at least once.

    The clock runs from the creation of the view, so it includes the group's join. Its provenance columns stay empty.
    It has one consumer: when a second one joins, both read the same messages (seen: every row stored twice).
    """

    exact = False

    def prepare(self) -> None:
        topic = f"engine-{self.table}"
        self.testbed.create_topic(topic)
        self.attach(topic)
        self.testbed.send(topic, self.data.json_messages(), {})

    def attach(self, topic: str) -> None:
        """Create the Kafka table on an existing topic; it reads nothing before there is a view."""
        bed = self.testbed
        _commit_begin(bed.bootstrap, f"group-{topic}", topic)
        columns = ", ".join(f"{name} {type_}" for name, type_ in dataset.COLUMNS.items())
        self._execute(
            f"CREATE TABLE queue_{self.table} ({columns}) ENGINE = Kafka SETTINGS "
            f"kafka_broker_list = '{bed.bootstrap}', kafka_topic_list = '{topic}', "
            f"kafka_group_name = 'group-{topic}', kafka_format = 'JSONEachRow', "
            f"kafka_row_delimiter = '\\n', kafka_num_consumers = 1"
        )

    def _execute(self, sql: str) -> None:
        self.testbed.stack.clickhouse[1, 1].execute(sql)

    def begin(self) -> None:
        # A view must fill every column of its target; the engine of 18.16 does not know offsets.
        empty = ["'' AS _kafka_cluster", *(f"to{dataset.PROVENANCE[name]}(0) AS {name}" for name in _NUMBERS)]
        columns = ", ".join([*dataset.COLUMNS, *empty])
        self._execute(
            f"CREATE MATERIALIZED VIEW view_{self.table} TO {self.table} AS SELECT {columns} FROM queue_{self.table}"
        )

    def stored(self) -> int:
        return self.testbed.rows(self.table)[0]

    def cpu(self) -> float | None:
        return None

    def detach(self) -> None:
        self._execute(f"DROP TABLE IF EXISTS view_{self.table}")
        self._execute(f"DROP TABLE IF EXISTS queue_{self.table}")

    def close(self) -> None:
        self.detach()
        self.testbed.delete_topic(f"engine-{self.table}")


def _commit_begin(bootstrap: str, group: str, topic: str) -> None:
    """Let the group begin at offset 0: the engine has no setting for it in a table."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "enable.auto.commit": False})
    offsets = [TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)]

    def committed() -> bool:
        try:
            result = consumer.commit(offsets=offsets, asynchronous=False)
        except KafkaException as error:  # the first group of a cluster waits for its coordinator
            if not error.args[0].retriable():
                raise
            return False
        return all(offset.error is None for offset in result)

    if not wait_until(committed, timeout=30, interval=0.5):
        raise StackError(f"the offsets of group {group} could not be set")
    consumer.close()
