"""The parent of the Python workers of a mirror's Spark (`spark.python.daemon.module`)."""

from __future__ import annotations

from blockhouse.spark.daemon import serve


def main() -> None:
    serve(("blockhouse_mirror.work.task",))


if __name__ == "__main__":
    main()
