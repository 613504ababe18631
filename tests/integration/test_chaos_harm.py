"""The chaos run's own tools do what they say, to whom they say, and to nobody else."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from e2e.chaos.network import permitted

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
    assert max(float(network[name]) for name in ("cut other", "cut bystander", "mended")) < 1.5


def test_a_lossy_line_delivers_late(found: Any) -> None:
    # 20 exchanges, at 20 % each way: at least one retransmission of 200 ms, but for one run in 7,000
    assert float(found["network"]["loss"]) > 0.19


def test_a_delayed_line_takes_longer_both_ways_for_one_client_only(found: Any) -> None:
    network = found["network"]
    assert float(network["delay"]) > 0.4
    assert max(float(network[name]) for name in ("delay other", "after")) < 0.4


def test_a_full_disk_takes_nothing_until_it_is_relieved(found: Any) -> None:
    assert found["disk"] == {"empty": "written", "full": "No space left on device", "relieved": "written"}
