"""A ClickHouse that cannot be reached: in words, with the cause, and without a traceback of the client's in any log."""

from __future__ import annotations

import socket
import subprocess
import sys

import pytest

from blockhouse.config.endpoints import ClickHouse
from blockhouse.errors import Retryable
from blockhouse_aggregator.clickhouse.client import Replica

ASK = """
import sys
from blockhouse.config.endpoints import ClickHouse
from blockhouse.errors import Retryable
from blockhouse_aggregator.clickhouse.client import Replica
from blockhouse_aggregator.spark import daemon

daemon.serve = lambda modules: None  # what it forks has what it has set
daemon.main()
try:
    Replica(ClickHouse(host="127.0.0.1", port=int(sys.argv[1]))).query("SELECT 1")
except Retryable as error:
    print(error)
"""


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def test_a_worker_logs_no_traceback_of_the_client_s() -> None:
    ended = subprocess.run([sys.executable, "-c", ASK, str(free_port())], capture_output=True, text=True, check=True)
    assert "cannot connect: Connection refused" in ended.stdout
    assert ended.stderr == ""


def test_one_that_does_not_answer_is_named_with_the_cause() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        port = silent.getsockname()[1]
        config = ClickHouse(host="127.0.0.1", port=port, connect_timeout_seconds=0.2)
        with Replica(config) as replica, pytest.raises(Retryable) as late:
            replica.query("SELECT 1")
    assert f"cannot connect: it does not answer in time (127.0.0.1:{port})" in str(late.value)
