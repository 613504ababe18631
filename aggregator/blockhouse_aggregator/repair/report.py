"""What a repair has found and done, for people and as JSON. Ranges are half-open, as the command takes them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.table import Table

from blockhouse_aggregator.repair.filling import Refused
from blockhouse_aggregator.repair.judging import Run, TableJudged, Verdict
from blockhouse_aggregator.repair.standing import IMPOSSIBLE, Standing
from blockhouse_aggregator.repair.survey import Surveyed

MISSING = 1
"""Exit code: messages are missing, or still are."""
_SHOWN = 10
LOG_BEGINS_LATER = "LogBeginsLater"
_WHY = {
    Verdict.NOT_DONE: ("NotDone", "its table lags there, or has a block in flight: the stream's owner loads it"),
    Verdict.AMBIGUOUS: (
        "ProvenanceAmbiguous",
        "some rows of a message are stored, and without column _kafka_row no one can determine which",
    ),
}


@dataclass(frozen=True, slots=True)
class RepairReport:
    """`found` is how the range is now. `before` is how many messages of each table were missing before they were loaded
    (None: nothing was to be loaded), `refused` what of them could not be. The range was asked for from `begin` on; the
    log begins at `found.begin`, if that is later."""

    standing: Standing
    begin: int
    found: Surveyed
    before: dict[str, int] | None = None
    refused: Sequence[Refused] = ()

    @property
    def exit_code(self) -> int:
        """0: nothing is missing of what the owner is done with; MISSING; IMPOSSIBLE: of what can be judged, nothing."""
        if any(table.missing for table in self.found.judged) or self.refused:
            return MISSING
        doubts = {verdict for table in self.found.judged for verdict in table.not_judged} - {Verdict.NOT_DONE}
        return IMPOSSIBLE if self.begin < self.found.begin or doubts else 0

    def to_json(self) -> dict[str, Any]:
        return {
            "stream": str(self.standing.stream),
            "from": self.found.begin,
            "to": self.found.end,
            "committed": self.standing.position,
            "notInTheLog": {"from": self.begin, "to": self.found.begin} if self.begin < self.found.begin else None,
            "withoutTable": self.found.headless,
            "executed": self.before is not None,
            "tables": [self._table(table) for table in self.found.judged],
            "refused": [asdict(each) for each in self.refused],
        }

    def _table(self, table: TableJudged) -> dict[str, Any]:
        messages = table.messages
        missing = table.missing
        return {
            "table": table.table,
            "messages": len(messages.offsets),
            "rows": int(messages.rows.sum()),
            "loaded": messages.count(Verdict.LOADED),
            "deadLettered": messages.count(Verdict.DEAD),
            "missing": sum(run.messages for run in missing),
            "missingRows": sum(run.rows for run in missing),
            "surplusRows": messages.surplus,
            "filled": self._filled(table),
            "ranges": [_range(run) for run in missing],
            "notJudged": [
                {"reason": why[0], "message": why[1], "ranges": [_range(run) for run in messages.runs(verdict)]}
                for verdict in table.not_judged
                for why in [_why(table, verdict)]
            ],
        }

    def _filled(self, table: TableJudged) -> int:
        return (self.before or {}).get(table.table, 0) - table.messages.count(Verdict.MISSING) if self.before else 0

    def render(self) -> Table:
        """A row a table."""
        shown = Table("table", "messages", "loaded", "dead-lettered", "missing", "not judged", "filled", "surplus rows")
        for table in self.found.judged:
            messages = table.messages
            beyond = sum(messages.count(verdict) for verdict in table.not_judged)
            missing = messages.count(Verdict.MISSING)
            shown.add_row(
                table.table,
                str(len(messages.offsets)),
                str(messages.count(Verdict.LOADED)),
                str(messages.count(Verdict.DEAD)),
                str(missing),
                str(beyond),
                "" if self.before is None else str(self._filled(table)),
                str(messages.surplus),
                style="red" if missing else "yellow" if beyond else None,
            )
        return shown

    def lines(self) -> Iterator[str]:
        """What the table has no room for."""
        stream, found = self.standing.stream, self.found
        yield f"{stream} [{found.begin}, {found.end}), committed up to {self.standing.position}"
        if self.begin < found.begin:
            yield f"not judged, {LOG_BEGINS_LATER}: [{self.begin}, {found.begin}) is not in the log any more"
        if found.headless:
            yield f"{found.headless} messages name no table"
        for table in found.judged:
            yield from (f"{table.table}: missing {text}" for text in _texts(table.missing))
            for verdict in table.not_judged:
                reason, why = _why(table, verdict)
                yield f"{table.table}: not judged, {reason}: {why}"
                yield from (f"{table.table}:   {text}" for text in _texts(table.messages.runs(verdict)))
        for each in self.refused:
            yield f"{each.table} [{each.begin}, {each.end + 1}): not loaded, {each.reason}: {each.message}"


def _why(table: TableJudged, verdict: Verdict) -> tuple[str, str]:
    return table.why.get(verdict) or _WHY[verdict]


def _range(run: Run) -> dict[str, int]:
    return {"from": run.begin, "to": run.end, "messages": run.messages, "rows": run.rows}


def _texts(runs: Sequence[Run]) -> Iterator[str]:
    for run in runs[:_SHOWN]:
        yield f"[{run.begin}, {run.end}): {run.messages} messages, {run.rows} rows"
    if len(runs) > _SHOWN:
        yield f"and {len(runs) - _SHOWN} more ranges: --json lists them"
