"""Everything that is ever done to a shard's replicas, one step at a time."""

from __future__ import annotations

from blockhouse_operator.decide.rebuild import BeginRebuild, EndRebuild, ReplaceVolume, RestoreReplica
from blockhouse_operator.decide.removal import DeleteReplica, Drain, Unregister
from blockhouse_operator.decide.rollout import BeginStep, EndStep, Restart, RestartAggregator

OneReplicaStep = (
    BeginStep
    | Restart
    | RestartAggregator
    | EndStep
    | Drain
    | Unregister
    | DeleteReplica
    | ReplaceVolume
    | RestoreReplica
)
"""Steps that leave the record of a rebuild alone."""
Step = OneReplicaStep | BeginRebuild | EndRebuild
