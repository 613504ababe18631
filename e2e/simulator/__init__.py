"""Plays the aggregators and verifiers in pods in which nothing runs (KWOK's): the same HTTP API, no data.

Whether it is the same is decided by tests/contract/, whose tests run against real aggregators too.
"""

from e2e.simulator.process import Simulator

__all__ = ["Simulator"]
