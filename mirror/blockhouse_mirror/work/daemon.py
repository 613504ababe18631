"""The parent of the Python workers of a mirror's Spark (`spark.python.daemon.module`)."""

from __future__ import annotations

import gc

from blockhouse.spark.daemon import serve

COLLECT_AFTER = 100_000
"""New objects between two searches for cycles. Records make none: at Python's own 700 a search for each thousand of
them took a tenth of a task's time."""


def main() -> None:
    gc.set_threshold(COLLECT_AFTER)
    serve(("blockhouse_mirror.work.task",))


if __name__ == "__main__":
    main()
