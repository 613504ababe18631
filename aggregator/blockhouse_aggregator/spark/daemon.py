"""The parent of Spark's Python workers (`spark.python.daemon.module`): imports what a task needs before it forks.

A worker is then there in milliseconds instead of after half a second of processor time, which on a busy machine are
seconds in which a stream that was taken over stands still; and all workers share the memory of these modules.

Must never hold a thread when it forks: a child would have none of them, and locks that they held for ever.
"""

from __future__ import annotations

import gc
import importlib
import os

THREADLESS = {"OPENBLAS_NUM_THREADS": "1", "JE_ARROW_MALLOC_CONF": "background_thread:false"}
"""What keeps numpy's linear algebra, of which nothing is used, and an allocator of Arrow's, which is not the one in
use, from starting threads when they are imported."""
PRELOADED = ("pyspark.worker", "blockhouse_aggregator.spark.task")


def preload() -> None:
    """Import what a task needs, in this thread alone."""
    os.environ.update(THREADLESS)
    for module in PRELOADED:
        importlib.import_module(module)
    gc.collect()
    gc.freeze()  # what a collection never looks at stays shared


def main() -> None:
    preload()
    importlib.import_module("pyspark.daemon").manager()


if __name__ == "__main__":
    main()
