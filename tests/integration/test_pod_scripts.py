"""How the pod starts ClickHouse and judges its start: the operator's scripts, on real servers."""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from blockhouse_operator.desired import scripts
from e2e.stack import Stack, StackSpec
from e2e.stack.process import wait_until

pytestmark = pytest.mark.integration


@pytest.fixture
def dark(tmp_path: Path) -> Iterator[Stack]:
    """Servers with a replicated table, all of them killed at once, as after a loss of power."""
    with Stack(tmp_path / "stack", StackSpec(kafka_clusters=1, replicas=2)) as stack:
        for server in stack.clickhouse.values():
            path = "/clickhouse/tables/{shard}/kept"
            server.execute(
                f"CREATE TABLE kept (n UInt64) ENGINE = ReplicatedMergeTree('{path}', '{{replica}}') ORDER BY n"
            )
        for each in stack.servers.values():
            each.kill()
        yield stack


def test_clickhouse_is_not_started_before_zookeeper_serves_and_then_by_itself(dark: Stack) -> None:
    servers = list(dark.clickhouse.values())
    for server in servers:
        server.start(wait=False)
    waiting = "waiting for ZooKeeper before"
    assert wait_until(lambda: all(waiting in server.output.read_text() for server in servers), timeout=60)
    lives = [server.pid for server in servers]
    assert not any(server.answers() for server in servers)

    dark.zookeeper.start()

    for server in servers:
        server.wait_ready()
    assert [server.pid for server in servers] == lives  # not one of them had to be started again
    assert wait_until(lambda: not any(server.unready_tables() for server in servers), timeout=60)


def test_clickhouse_is_started_without_zookeeper_when_it_has_waited_for_long() -> None:
    script = scripts.start_after_zookeeper(["127.0.0.1:1", "[::1]:1"], patience=1)
    done = subprocess.run(
        ["/bin/sh", "-c", script, "echo", "started"], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == "started\n"
    assert "ZooKeeper does not serve: starting echo without it" in done.stderr


def probe(process: int, port: int) -> subprocess.CompletedProcess[str]:
    script = scripts.until_started(port, process=process, quiet=2, every=1)
    return subprocess.run(["/bin/sh", "-c", script], capture_output=True, text=True, timeout=100, check=False)


def test_a_server_that_listens_has_started(stack: Stack) -> None:
    server = stack.clickhouse[1, 1]
    assert server.pid is not None
    assert probe(server.pid, server.http_port).returncode == 0


def test_a_process_that_does_nothing_hangs_at_its_start() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as idle:
        found = probe(idle.pid, 1)
        idle.kill()
    assert found.returncode == 1
    assert "hangs at its start" in found.stdout


def test_a_process_that_works_for_long_is_waited_for() -> None:
    """It listens after four times the patience, for all of which it has been busy."""
    with socket.socket() as reserved:
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        reserved.bind(("127.0.0.1", 0))
        port = reserved.getsockname()[1]
        _listens_late(port)


def _listens_late(port: int) -> None:
    work = (
        "import socket, time\n"
        "while time.process_time() < 8: pass\n"
        f"s = socket.create_server(('127.0.0.1', {port})); input()"
    )
    with subprocess.Popen([sys.executable, "-c", work], stdin=subprocess.PIPE) as busy:
        found = probe(busy.pid, port)
        busy.kill()
    assert found.returncode == 0, found.stdout


def test_a_stack_starts_a_server_again_that_hangs_and_reports_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    # given a server whose first start does nothing at all, indefinitely
    monkeypatch.setattr("e2e.stack.hanging.HUNG_SECONDS", 2.0)
    real = shutil.which("clickhouse-server") or shutil.which("clickhouse-server", path="/usr/sbin")
    assert real is not None
    program = tmp_path / "clickhouse-server"
    hangs = f"[ -e {tmp_path}/hung ] || {{ touch {tmp_path}/hung; exec sleep 1000; }}"
    program.write_text(f'#!/bin/sh\n[ "$1" = --version ] && exec {real} "$@"\n{hangs}\nexec {real} "$@"\n')
    program.chmod(0o755)
    # when it is started
    with Stack(tmp_path / "stack", StackSpec(kafka_clusters=1, replicas=1, clickhouse=str(program))) as stack:
        # then it answers, after it was killed
        assert stack.clickhouse[1, 1].answers()
    assert [record.getMessage() for record in caplog.records if record.name != "e2e.stack.process"] == [
        "clickhouse-1-1 hangs at its start: killed and started again"
    ]
