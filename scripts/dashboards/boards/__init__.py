"""The dashboards, a module each: the questions that a person on call asks, the queries that answer, and what to do."""

from __future__ import annotations

from scripts.dashboards.boards import fleet, kafka_fleet, mirror, operator, pipeline, shard, table, verifier

BOARDS = tuple(module.BOARD for module in (fleet, pipeline, shard, table, verifier, operator, kafka_fleet, mirror))
