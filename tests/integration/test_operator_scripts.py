"""The shell scripts of a pod's containers."""

from __future__ import annotations

import socket
import subprocess

import pytest

from blockhouse_operator.desired import scripts

pytestmark = pytest.mark.integration


def test_clickhouse_waits_while_the_aggregator_listens_and_no_longer() -> None:
    def seconds_waited(port: int) -> int:
        script = scripts.wait_until_closed(port, most=1)
        shell = ["/bin/sh", "-c", f"{script}; echo $n"]
        return int(subprocess.run(shell, check=True, timeout=30, capture_output=True, text=True).stdout)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        while_listening = seconds_waited(port)

    assert while_listening == 1
    assert seconds_waited(port) == 0
