"""The chaos run's own tools do what they promise, to the processes they name, and to no other."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from e2e.chaos.clock import WallClock, library
from e2e.chaos.network import permitted
from e2e.stack.process import wait_until

pytestmark = pytest.mark.integration
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Any:
    if not permitted():
        pytest.skip("namespaces and packet filters need root")
    folder = tmp_path_factory.mktemp("disk")
    command = [sys.executable, "-m", "tests.integration.chaos_probe", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_cut_stops_one_pair_and_no_other(found: Any) -> None:
    network = found["network"]
    assert float(network["before"]) < 1.5
    assert network["cut"] == "TimeoutError"
    assert max(float(network[name]) for name in ("cut other", "cut bystander", "healed")) < 1.5


def test_a_lossy_line_delivers_late(found: Any) -> None:
    # 20 exchanges, at 20 % each way: at least one retransmission of 200 ms, but for one run in 7,000
    assert float(found["network"]["loss"]) > 0.19


def test_a_delayed_line_takes_longer_both_ways_for_one_client_only(found: Any) -> None:
    network = found["network"]
    assert float(network["delay"]) > 0.4
    assert max(float(network[name]) for name in ("delay other", "after")) < 0.4


def test_a_full_disk_takes_nothing_until_it_is_relieved(found: Any) -> None:
    assert found["disk"] == {"empty": "written", "full": "No space left on device", "relieved": "written"}


_PRINT_CLOCKS = "import sys, time\nfor _ in sys.stdin: print(time.time(), time.monotonic(), flush=True)"


def test_a_shifted_process_has_another_wall_clock_and_the_same_monotonic_one(tmp_path: Path) -> None:
    found = library()
    if found is None:
        pytest.skip("libfaketime is not installed")
    clock = WallClock(tmp_path / "clock", found)
    command, variables = [sys.executable, "-c", _PRINT_CLOCKS], {**os.environ, **clock.variables}
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, env=variables, **pipes) as process:

        def off() -> tuple[float, float]:
            """By how many seconds its clocks are off; it answers between two readings of ours."""
            wall, steady = time.time(), time.monotonic()
            process.stdin.write("?\n")  # type: ignore[union-attr]
            process.stdin.flush()  # type: ignore[union-attr]
            read = [float(word) for word in process.stdout.readline().split()]  # type: ignore[union-attr]
            return read[0] - wall, read[1] - steady

        assert abs(off()[0]) < 20
        for offset in (-300, 600):
            with clock.shifted(offset):
                assert wait_until(lambda offset=offset: abs(off()[0] - offset) < 20, timeout=60)  # type: ignore[misc]
                assert abs(off()[1]) < 20
        assert wait_until(lambda: abs(off()[0]) < 20, timeout=60)
