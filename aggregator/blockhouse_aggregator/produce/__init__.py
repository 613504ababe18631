"""Load generation: messages for any table of a pipeline, the same ones for the same seed, with a record of each."""

from blockhouse_aggregator.produce.load import LoadResult, LoadSpec, generate
from blockhouse_aggregator.produce.pool import Kind, MessagePool

__all__ = ["Kind", "LoadResult", "LoadSpec", "MessagePool", "generate"]
