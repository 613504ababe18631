"""What a mirror answers over HTTP: its status, and a request to make its tasks even."""

from __future__ import annotations

from blockhouse.contract.base import Answer, Endpoint

OWN_ERRORS = frozenset({"discovery", "positions", "assignment", "load", "history"})
"""Keys of `errors` that are about the driver itself; all others are topics of the source."""


class MirrorTask(Answer):
    """One task."""

    name: str
    running: bool
    """Whether it can be spoken to."""
    partitions: int
    """Partitions that are assigned to it."""
    bytes_per_second: float
    """What they weigh."""


class MirrorPartition(Answer):
    """One partition of the source."""

    topic: str
    partition: int
    task: str = ""
    """The task it is assigned to."""
    holder: str = ""
    """The task that has its grant; empty while none has."""
    position: int = -1
    """Source offset below which everything is on the target."""
    end: int = -1
    """Where the source's log ends, as last seen."""
    lag_seconds: float = 0.0
    """Since when something at the position waits."""
    bytes_per_second: float = 0.0
    """What it weighs."""
    rate_source: str = ""
    """From what its weight is: `partition` was measured, `history` by a former driver, `topic`, or `default`."""
    records: int = 0
    """Mirrored since this driver started."""
    bytes: int = 0
    """Of these records."""
    left_out: int = 0
    """Records that came from the target and were not mirrored back."""
    dead_letters: int = 0
    """Records that the target refused and that `onRefused: DeadLetter` kept in the topic for them."""
    skipped: int = 0
    """Records lost to gaps that `onGap: Skip` passed."""
    stopped: str = ""
    """The reason for which it is not mirrored until a person decides."""
    waits: str = ""
    """Why it is not mirrored right now, where that passes by itself."""
    message: str = ""
    """What happened, and what it means."""


class OffendingPartition(Answer):
    """A partition that no assignment helps."""

    topic: str
    partition: int
    bytes_per_second: float
    share: float
    """Of what one task can carry."""
    advice: str


class MirrorStatus(Answer):
    """The whole of a mirror."""

    mirror: str
    source: str
    target: str
    delivery: str
    tasks: tuple[MirrorTask, ...]
    capped_by: str
    """What keeps the number of tasks from what the load asks for: Min, Max, Slots, or nothing."""
    quality: float
    """Load of the heaviest task against the mean; 1 is even."""
    load_age_seconds: float | None
    """Since the newest sample of load; none while nothing was measured."""
    rebalances: dict[str, int]
    """By cause."""
    moved: int
    """Partitions that were moved since this driver started."""
    latency_seconds: float
    """From source append to target acknowledgement: the mean of all records so far."""
    partitions: tuple[MirrorPartition, ...]
    offending: tuple[OffendingPartition, ...]
    copies: dict[str, str] = {}
    """Topics of the source that are left out, each with the topic of the target that another mirror copies to it."""
    errors: dict[str, str]
    """What does not work now, by what was tried: one of OWN_ERRORS, or a topic that the target cannot have alike."""


class Requested(Answer):
    """A request was taken."""

    requested: bool


STATUS = Endpoint("GET", "/status", "Tasks, partitions, and what stands still.", MirrorStatus)
REBALANCE = Endpoint("POST", "/rebalance", "Make the tasks even at the next look.", Requested)
