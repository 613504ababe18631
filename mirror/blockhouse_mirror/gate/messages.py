"""The vocabulary. A task writes a partition only between `Assign` and its own `Released`, and only while it is alive.

task                                  driver
Hello(work, epoch, lease)       ->        <- Welcome(settings)
Ping(moment)                    ->        <- Alive(moment)            (every second; a task that misses it ends)
                                          <- Assign(partitions) | Revoke(partitions) | Stop     (at any time)
Report(partitions)              ->                                    (every commit interval)
Released(partition)             ->                                    (all that was sent is acknowledged)
Failed(partition, reason)       ->                                    (it is not mirrored any more by this task)
Bye                             ->                                    (after Stop: all partitions are released)
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, TypeAdapter

from blockhouse.gate.messages import Greeting, Hello, Message


class PartitionKey(Message):
    """A source partition under one grant: an old answer is not taken for a new one."""

    topic: str
    partition: int
    generation: int


class Place(PartitionKey):
    """How far a task is: `offset` and `epoch` in the source, `tail` in the target; see `protocol.position`."""

    offset: int
    epoch: int
    tail: int


# --- task -> driver -----------------------------------------------------------------------------------------


class PartitionReport(Place):
    """`records`, `bytes`, `left_out` and dead `letters` since the assignment, `in_flight` bytes now; `end` is the
    source's log end as the client knows it, -1 when unknown."""

    records: int
    bytes: int
    left_out: int
    letters: int
    in_flight: int
    end: int


class Report(Message):
    """What changed since the last report. `latency_ms` has from source append to target acknowledgement: the largest
    and the sum over `acknowledged` records."""

    type: Literal["report"] = "report"
    partitions: tuple[PartitionReport, ...]
    acknowledged: int
    latency_sum_ms: float
    latency_max_ms: float


class Released(Place):
    """The task will not write the partition any more, and every record that it sent is acknowledged."""

    type: Literal["released"] = "released"


class Failed(PartitionKey):
    """The partition cannot continue, for this reason. `released`: nothing of it was sent under this grant, which ends;
    otherwise `Released` follows, or the end of the task. `careful_until`: a record below that offset was refused with
    others, so that it is not known which; -1 when it is."""

    type: Literal["failed"] = "failed"
    reason: str
    message: str
    released: bool
    careful_until: int = -1


class Ping(Message):
    """The task is there. `moment` is of its own clock, in seconds."""

    type: Literal["ping"] = "ping"
    moment: float


class Bye(Message):
    """The lease ends cleanly."""

    type: Literal["bye"] = "bye"


# --- driver -> task -----------------------------------------------------------------------------------------


class Welcome(Greeting):
    """What all partitions of the task share. Sizes in bytes, times in seconds. `dead_letters` is the topic for records
    that the target refuses, empty for none."""

    type: Literal["welcome"] = "welcome"
    source_cluster: str
    target_cluster: str
    read_tail: bool
    in_flight: int
    report_interval: float
    compression: str
    dead_letters: str
    grant_seconds: float


class Assigned(Place):
    """Mirror this partition from here on, to the same partition of `target_topic`. `tail_cut`: the target's retention
    has taken what was at the beginning of the tail. `careful_until`: the target has refused a record below that offset,
    with others that were sent beside it: send one at a time."""

    topic_id: str
    target_topic: str
    tail_cut: bool
    careful_until: int


class Assign(Message):
    """Further partitions for the task."""

    type: Literal["assign"] = "assign"
    partitions: tuple[Assigned, ...]


class Revoke(Message):
    """Release these."""

    type: Literal["revoke"] = "revoke"
    partitions: tuple[PartitionKey, ...]


class Alive(Message):
    """The answer to a ping: the grants hold for `Welcome.grant_seconds` from the moment of that ping on. What waited in
    a queue while the task was frozen extends nothing."""

    type: Literal["alive"] = "alive"
    moment: float


class Stop(Message):
    """Release everything and end."""

    type: Literal["stop"] = "stop"


FromTask = Annotated[Hello | Ping | Report | Released | Failed | Bye, Field(discriminator="type")]
FromDriver = Annotated[Welcome | Assign | Revoke | Alive | Stop, Field(discriminator="type")]

FROM_TASK: TypeAdapter[FromTask] = TypeAdapter(FromTask)
FROM_DRIVER: TypeAdapter[FromDriver] = TypeAdapter(FromDriver)
