"""The parent of the Python workers that load blocks: see `blockhouse.spark.daemon`."""

from __future__ import annotations

from blockhouse.spark.daemon import serve

PRELOADED = ("blockhouse_aggregator.spark.task",)


def main() -> None:
    serve(PRELOADED)


if __name__ == "__main__":
    main()
