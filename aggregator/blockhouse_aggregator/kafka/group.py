"""The words between a group member and the owner of the protocol state: values and one interface, no I/O.

What became of a commit is a `protocol.commits.CommitOutcome`; `judge` must never call Refused what may yet be applied.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Literal, Protocol

from confluent_kafka import KafkaError

from blockhouse.errors import BlockhouseError
from blockhouse.streams import StreamId
from blockhouse_aggregator.protocol.commits import APPLIED, CommitOutcome, Refused, Unknown

DropReason = Literal["revoked", "lost", "rejoin"]
"""revoked: released in order. lost: the broker threw us out. rejoin: our own doing, a commit's fate is unknown."""


@dataclass(frozen=True, slots=True)
class Committed:
    """A stream's committed offset; `offset` is None when the group never committed (or its offsets expired)."""

    offset: int | None
    metadata: str | None = None
    leader_epoch: int | None = None


class GroupListener(Protocol):
    """Called on the member's thread with what it owns. Must return fast: the group waits for it."""

    def assigned(self, stream: StreamId, epoch: int) -> None:
        """The stream is ours under `epoch` until it is dropped; `commit` and `committed` want this epoch."""

    def settling(self, held: Mapping[StreamId, int]) -> Future[None]:
        """These streams, by their epochs, are about to be released in order, and can be committed until then. Done when
        there is nothing left to commit; cancelled when that took too long."""

    def dropped(self, stream: StreamId, epoch: int, reason: DropReason) -> None:
        """The stream held under `epoch` is ours no more; nothing of it can be committed from now on."""

    def failed(self, error: BlockhouseError) -> None:
        """The cluster is unreachable or refuses us. After a Permanent InstanceFenced (the second in a minute),
        ClientFatal or Crashed the member has left and stays out until `join`; otherwise it keeps trying by itself."""

    def recovered(self) -> None:
        """The cause of the last `failed` is gone."""


# A coordinator checks these before it appends anything to __consumer_offsets. NOT_COORDINATOR and
# COORDINATOR_NOT_AVAILABLE are deliberately absent: they are also the answer when the record was appended and its
# replication then failed or timed out, and such a record may become visible later.
_REFUSALS: dict[int, str] = {
    KafkaError.UNKNOWN_MEMBER_ID: "UnknownMember",
    KafkaError.ILLEGAL_GENERATION: "IllegalGeneration",
    KafkaError.STALE_MEMBER_EPOCH: "IllegalGeneration",
    KafkaError.FENCED_INSTANCE_ID: "FencedInstance",
    KafkaError.REBALANCE_IN_PROGRESS: "RebalanceInProgress",
    KafkaError.OFFSET_METADATA_TOO_LARGE: "OffsetMetadataTooLarge",
    KafkaError.INVALID_COMMIT_OFFSET_SIZE: "CommitTooLarge",
    KafkaError.INVALID_GROUP_ID: "InvalidGroup",
    KafkaError.UNKNOWN_TOPIC_OR_PART: "UnknownTopic",
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "NotAuthorized",
    KafkaError.GROUP_AUTHORIZATION_FAILED: "NotAuthorized",
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS: "CoordinatorLoading",
    # Local to the client: it refuses to send at all.
    KafkaError._FATAL: "ClientFatal",
    KafkaError._NO_OFFSET: "InvalidOffset",
}
# Normal while others join or leave: the commit crossed a change of generation in which we keep the stream.
_RETRY = {KafkaError.REBALANCE_IN_PROGRESS, KafkaError.ILLEGAL_GENERATION, KafkaError.COORDINATOR_LOAD_IN_PROGRESS}


def judge(error: KafkaError | None) -> CommitOutcome:
    """The outcome of a commit whose only request was answered with `error` (None: without one)."""
    if error is None:
        return APPLIED
    code = error.code()
    if code in _REFUSALS:
        return Refused(_REFUSALS[code], retry=code in _RETRY)
    return Unknown(error.name())
