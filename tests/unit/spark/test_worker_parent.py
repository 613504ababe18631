"""The parent of Spark's workers. That tasks run in its children is shown wherever a real aggregator runs."""

from __future__ import annotations

import subprocess
import sys

PRELOAD = """
import os, sys
from blockhouse_aggregator.spark.daemon import preload
preload()
print(len(os.listdir("/proc/self/task")), "blockhouse_aggregator.spark.task" in sys.modules, "pyarrow" in sys.modules)
"""


def test_all_that_a_task_imports_starts_no_thread_before_a_worker_is_forked() -> None:
    said = subprocess.run([sys.executable, "-c", PRELOAD], capture_output=True, text=True, check=True, timeout=60)
    assert said.stdout.split() == ["1", "True", "True"]
