"""The parent of Spark's Python workers (`spark.python.daemon.module`): imports what a task needs before it forks.

A worker is then there in milliseconds instead of after half a second of processor time, which on a busy machine are
seconds in which work that was taken over stands still; and all workers share the memory of these modules.

Which modules these are is each system's own: the module that it runs as the parent calls `serve` with their names. Run
by itself, for workers with nothing to do (`archive`), this one imports Spark's worker alone.

Must never hold a thread when it forks: a child would have none of them, and locks that they held indefinitely.
"""

from __future__ import annotations

import gc
import importlib
import importlib.util
import os
import sys
from collections.abc import Sequence
from types import ModuleType

THREADLESS = {"OPENBLAS_NUM_THREADS": "1", "JE_ARROW_MALLOC_CONF": "background_thread:false"}
"""What keeps numpy's linear algebra, of which nothing is used, and an allocator of Arrow's, which is not the one in
use, from starting threads when they are imported."""
ARCHIVES = (".zip", ".jar")


def preload(modules: Sequence[str]) -> None:
    """Import what a task needs, Spark's worker and these, in this thread alone."""
    os.environ.update(THREADLESS)
    sys.meta_path.insert(0, WithoutPandas())
    leave_archives()
    for module in ("pyspark.worker", *modules):
        importlib.import_module(module)
    gc.collect()
    gc.freeze()  # what a collection never touches stays shared


class WithoutPandas:
    """Pandas is as if not installed: nothing here uses it, but where it is there, Arrow would import it in every worker
    again while it builds its first block, a quarter of a second of processor time."""

    @staticmethod
    def find_spec(name: str, _path: Sequence[str] | None, _target: ModuleType | None = None) -> None:
        if name == "pandas":
            raise ModuleNotFoundError("workers do without pandas", name=name)


def leave_archives() -> None:
    """Import pyspark from where it is installed, if it is, and not from the archives that Spark puts before it: these
    hold no compiled modules, and every worker would read their tables of contents again with its first task."""
    paths, given = list(sys.path), os.environ.get("PYTHONPATH", "").split(os.pathsep)
    sys.path[:] = [path for path in paths if not (path in given and path.endswith(ARCHIVES))]
    sys.path_importer_cache.clear()
    if importlib.util.find_spec("pyspark") is None:
        sys.path[:] = paths


def serve(modules: Sequence[str]) -> None:
    """Fork workers that have imported these modules, until Spark ends this process."""
    preload(modules)
    importlib.import_module("pyspark.daemon").manager()


if __name__ == "__main__":
    serve(())
