"""The parent of the Python workers that load blocks: see `blockhouse.spark.daemon`."""

from __future__ import annotations

from blockhouse.logs import quiet_clickhouse
from blockhouse.spark.daemon import serve

PRELOADED = ("blockhouse_aggregator.spark.task",)


def main() -> None:
    quiet_clickhouse()
    serve(PRELOADED)


if __name__ == "__main__":
    main()
