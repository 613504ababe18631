"""How one table of a shard gets the columns it should have: the next step, from what is, at any moment.

A replicated ALTER reaches every replica at once, so the whole shard holds the table while it runs: hold, wait until
every replica obeys and every stream is owned, alter once, release. Nothing is remembered but the pause itself (durable,
in ZooKeeper), so an operator that is killed anywhere continues from what it finds.
"""

from __future__ import annotations

from dataclasses import dataclass

from blockhouse_operator.api.conditions import Reason
from blockhouse_operator.decide.seen import TableAt
from blockhouse_operator.decide.words import counted

ROLLOUT = "operator/schema"
"""The name under which the operator holds tables. One for all specs: a spec that changes meanwhile continues it."""


@dataclass(frozen=True, slots=True)
class TableLook:
    """A table at one moment, at the replicas of all zones; the first is one that this operator serves.

    `unowned` are streams without an owner, `unheard` zones of which nothing was heard. `now_ms` is Unix time.
    `abandoned`: this generation's declaration has timed out before. `refused`: the DDL itself cannot be
    used (reason, text).
    `restarting` is a replica whose restart was begun; `rolling`: because tables were changed; `reload`: no one restarts
    for that. `outside_window` is when restarts may begin again, empty while they may. `busy_shards` are other shards
    of the pipeline with a table held or a replica that restarts.
    """

    name: str
    at: tuple[TableAt, ...]
    now_ms: int = 0
    unowned: tuple[str, ...] = ()
    unheard: tuple[str, ...] = ()
    refused: str = ""
    paused: bool = False
    outside_window: str = ""
    aborted: bool = False
    restarting: str = ""
    rolling: bool = False
    reload: bool = False
    abandoned: bool = False
    timeout_seconds: float = 900.0
    busy_shards: int = 0
    max_parallel_shards: int = 1

    @property
    def asked(self) -> str:
        """The replica whose aggregator is asked for what concerns the whole shard: one of ours that answers."""
        ours = [at.replica for at in self.at if at.served and at.gap is not None]
        return ours[0] if ours else self.at[0].replica


@dataclass(frozen=True, slots=True)
class Create:
    """Create the table at this replica and at `others`, or record the schema of one that is not known yet.

    Nothing that is there is changed by it: it may be decided by old reports of a watch.
    """

    replica: str
    others: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PauseTable:
    """Ask this replica's aggregator to hold the table in every stream of the shard."""

    replica: str


@dataclass(frozen=True, slots=True)
class Alter:
    """Add the missing columns by way of this replica."""

    replica: str


@dataclass(frozen=True, slots=True)
class Release:
    """Release the table by way of this replica. With `abandoned` this declaration is not tried again."""

    replica: str
    abandoned: bool = False


TableStep = Create | PauseTable | Alter | Release

CHANGE: tuple[type[TableStep], ...] = (PauseTable, Alter, Release)
"""The steps by which columns are added, in order; restarts of aggregators follow (`decide.rollout.RESTART`)."""


@dataclass(frozen=True, slots=True)
class TablePlan:
    """The step to take now, if any, and what the status shows of the table."""

    step: TableStep | None
    reason: Reason
    message: str = ""
    revision: int = 0
    stalled: bool = False


def plan_table(look: TableLook) -> TablePlan:
    """What to do with the table now. Total: whatever was seen, there is an answer."""
    known = [at for at in look.at if at.gap is not None]
    holders = [at for at in look.at if at.rollout == ROLLOUT]
    revision = min((at.revision for at in look.at if at.revision or at.gap is not None), default=0)
    if look.refused or (refusals := _refusals(known)):
        text = look.refused or "; ".join(refusals)
        step = Release(look.asked) if holders else None
        return TablePlan(step, Reason.SCHEMA_MISMATCH, text, revision, stalled=True)
    if not known:
        silent = "; ".join(at.silence for at in look.at if at.silence)
        return TablePlan(None, Reason.STATUS_UNKNOWN, silent or "no aggregator of the shard answers")
    lacking = [at for at in known if at.gap is not None and at.gap.exists and at.gap.added]
    missing = [at for at in known if at.gap is not None and not at.gap.exists]
    if lacking:
        return _change(look, known, lacking, holders, revision)
    if missing:
        # Only now: a replica that is created joins the columns that the others have.
        ours = [at.replica for at in missing if at.served]
        text = f"creating it at {', '.join(at.replica for at in missing)}"
        return TablePlan(Create(ours[0], tuple(ours[1:])) if ours else None, Reason.SCHEMA_CHANGING, text)
    if holders:
        text = "releasing it: all columns are there"
        return TablePlan(Release(look.asked), Reason.SCHEMA_CHANGING, text, revision)
    return _settled(look, known, revision)


def _refusals(known: list[TableAt]) -> list[str]:
    texts: dict[str, list[str]] = {}
    for at in known:
        for text in at.gap.refused if at.gap else ():
            texts.setdefault(text, []).append(at.replica)
    return [f"{text} ({', '.join(replicas)})" for text, replicas in texts.items()]


def _change(
    look: TableLook, known: list[TableAt], lacking: list[TableAt], holders: list[TableAt], revision: int
) -> TablePlan:
    columns = ", ".join(lacking[0].gap.added if lacking[0].gap else ())
    if any(at.gap is not None and at.gap.exists and not at.gap.added for at in known):
        return _spread(look, lacking, holders, revision)
    if not holders:
        return _begin(look, columns, revision)
    if look.aborted:
        text = f"abandoned adding {columns}: spec.rollout.abort is true; the table continues as it was"
        return TablePlan(Release(look.asked, abandoned=True), Reason.ABORTED, text, revision)
    waits = _not_obeyed(look)
    if not waits:
        text = f"adding {columns}"
        # Of several operators that find so, the later ones find nothing left to add.
        return TablePlan(Alter(look.asked), Reason.SCHEMA_CHANGING, text, revision)
    if _held_for(look, holders) > look.timeout_seconds:
        text = f"abandoned adding {columns}: {waits} after {look.timeout_seconds:.0f} s; the table continues as it was"
        step = Release(look.asked, abandoned=True)
        return TablePlan(step, Reason.STEP_TIMED_OUT, text, revision, stalled=True)
    return TablePlan(None, Reason.SCHEMA_CHANGING, f"held to add {columns}: {waits}", revision)


def _begin(look: TableLook, columns: str, revision: int) -> TablePlan:
    """Whether the table may be held now. It is never held for long in vain: all that is needed must be there before."""
    if look.aborted:
        return TablePlan(None, Reason.ABORTED, f"{columns} would be added; spec.rollout.abort is true", revision)
    if look.abandoned:
        text = f"adding {columns} timed out; change the spec (or pause and resume it) to have it tried again"
        return TablePlan(None, Reason.STEP_TIMED_OUT, text, revision, stalled=True)
    if look.paused:
        return TablePlan(None, Reason.PAUSED, f"{columns} would be added; spec.rollout.paused is true", revision)
    if look.outside_window and not look.reload:
        return TablePlan(None, Reason.OUTSIDE_WINDOW, f"{columns} would be added; {look.outside_window}", revision)
    others = sorted({at.rollout for at in look.at if at.rollout})
    if others:
        return TablePlan(None, Reason.SCHEMA_CHANGING, f"{columns} to add; rollout {others[0]} holds it", revision)
    if waits := _unfit(look):
        return TablePlan(None, Reason.SCHEMA_CHANGING, f"{columns} to add: {waits}", revision)
    if look.busy_shards >= look.max_parallel_shards:
        text = f"{columns} to add: {counted(look.busy_shards, 'other shard is', 'other shards are')} being changed"
        return TablePlan(None, Reason.SCHEMA_CHANGING, text, revision)
    return TablePlan(PauseTable(look.asked), Reason.SCHEMA_CHANGING, f"holding it to add {columns}", revision)


def _unfit(look: TableLook) -> str:
    """What in the shard is not well: a change is never begun then."""
    for at in look.at:
        if at.gap is None or not at.ready:
            return f"waiting for replica {at.replica}{f' ({at.silence})' if at.silence else ''}"
    if look.restarting:
        return f"waiting for replica {look.restarting}, which restarts"
    if look.unheard:
        return f"waiting for the operator of zone {look.unheard[0]}"
    if look.unowned:
        return f"waiting for an owner of {look.unowned[0]}"
    return ""


def _not_obeyed(look: TableLook) -> str:
    if waits := _unfit(look):
        return waits
    since = max(at.held_since_ms for at in look.at)
    for at in look.at:
        # Another time is that of an earlier hold: the report of another zone may be some seconds old.
        if at.rollout != ROLLOUT or at.held_since_ms != since:
            return f"waiting for replica {at.replica} to hold it"
        if at.busy:
            return f"waiting for a block in flight at replica {at.replica}"
    return ""


def _held_for(look: TableLook, holders: list[TableAt]) -> float:
    """Seconds since the table was paused."""
    return (look.now_ms - min(at.held_since_ms for at in holders)) / 1000


def _spread(look: TableLook, lacking: list[TableAt], holders: list[TableAt], revision: int) -> TablePlan:
    """Altered, and some replica does not have the columns yet. Its aggregator does not load the table before it does,
    so after the time-out the others need not wait for it."""
    names = ", ".join(at.replica for at in lacking)
    if holders and look.aborted:
        text = f"released by spec.rollout.abort although {names} has not got the new columns yet"
        return TablePlan(Release(look.asked), Reason.SCHEMA_CHANGING, text, revision)
    if holders and _held_for(look, holders) > look.timeout_seconds:
        text = f"released although {names} has not got the new columns yet; it does not load the table before"
        return TablePlan(Release(look.asked), Reason.SCHEMA_CHANGING, text, revision)
    return TablePlan(None, Reason.SCHEMA_CHANGING, f"waiting for the new columns at {names}", revision)


def _why_not_restarted(look: TableLook) -> Reason:
    if look.aborted:
        return Reason.ABORTED
    if look.paused:
        return Reason.PAUSED
    return Reason.OUTSIDE_WINDOW if look.outside_window else Reason.SCHEMA_CHANGING


def _settled(look: TableLook, known: list[TableAt], revision: int) -> TablePlan:
    newest = max(at.revision for at in known)
    unrecorded = [at for at in known if at.served and not at.revision and not at.why]
    if unrecorded:
        text = "recording its columns, for producers to know them"
        return TablePlan(Create(unrecorded[0].replica), Reason.SCHEMA_CHANGING, text)
    for at in known:
        if at.why:
            return TablePlan(None, Reason.TABLE_BLOCKED, f"replica {at.replica}: {at.why}", revision)
        if at.revision < newest:
            text = f"waiting for revision {newest} at replica {at.replica}"
            return TablePlan(None, Reason.SCHEMA_CHANGING, text, revision)
    if due := [at.replica for at in look.at if at.restart_due and not look.reload]:
        text = f"the new revision is loaded; still to restart: {', '.join(due)}"
        return TablePlan(None, _why_not_restarted(look), text, revision)
    if look.rolling:
        return TablePlan(
            None, Reason.SCHEMA_CHANGING, f"the new revision is loaded; {look.restarting} restarts", revision
        )
    if silent := [at for at in look.at if at.gap is None or at.silence]:
        return TablePlan(None, Reason.STATUS_UNKNOWN, f"replica {silent[0].replica}: {silent[0].silence}", revision)
    return TablePlan(None, Reason.AS_SPECIFIED, "", revision)
