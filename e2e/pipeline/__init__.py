"""A pipeline on a stack: aggregators as real processes, for the demonstration, tests, chaos and bench alike."""

from e2e.pipeline.aggregator import AggregatorProcess
from e2e.pipeline.pipeline import Pipeline, PipelineSpec

__all__ = ["AggregatorProcess", "Pipeline", "PipelineSpec"]
