"""A pipeline on a stack: aggregators as real processes, for the demonstration, tests, chaos and bench alike."""

from e2e.pipeline.aggregator import AggregatorProcess
from e2e.pipeline.pipeline import Pipeline, PipelineSpec
from e2e.pipeline.verifier import VerifierProcess, verifier_of

__all__ = ["AggregatorProcess", "Pipeline", "PipelineSpec", "VerifierProcess", "verifier_of"]
