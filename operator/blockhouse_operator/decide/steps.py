"""Everything that is ever done to a shard's replicas, one step at a time."""

from __future__ import annotations

from blockhouse_operator.decide.removal import DeleteReplica, Drain, Unregister
from blockhouse_operator.decide.rollout import BeginStep, EndStep, Restart, RestartAggregator

Step = BeginStep | Restart | RestartAggregator | EndStep | Drain | Unregister | DeleteReplica
