"""Dead letters of one stream while one owner has it: what the log and the status page state of them.

Letters come in floods, such as from one producer with a wrong schema: the log must have a few lines a minute at most,
and the status page a few tables, whatever comes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import structlog

from blockhouse.contract.notices import TableLetters
from blockhouse_aggregator.gate.messages import LettersWritten

log = structlog.get_logger(__name__)

QUIET_MS = 60_000
"""After a line, further letters of its table for its reason are only counted for so long."""
MOST_LINES = 20
"""Lines of one stream in that time."""
MOST_TABLES = 20
"""Tables on the status page: those whose last letter is the newest."""
RECENT_MS = 24 * 3_600_000
"""For how long letters are on the status page: until someone has surely looked."""


@dataclass(slots=True)
class _Line:
    at_ms: int
    unlogged: int = 0

    def counted(self, messages: int) -> None:
        self.unlogged += messages

    def is_recent(self, now_ms: int) -> bool:
        """Not when the clock went back since: until it is there again no letter would have a line."""
        return 0 <= now_ms - self.at_ms < QUIET_MS


class StreamLetters:
    """Counts from when its owner took the stream over. Caller: the stream's report, on the event loop."""

    def __init__(self, stream: str, now_ms: Callable[[], int]) -> None:
        self._stream = stream
        self._now_ms = now_ms
        self._tables: dict[str, TableLetters] = {}
        self._lines: dict[tuple[str, str], _Line] = {}

    def written(self, letters: Iterable[LettersWritten]) -> None:
        """The brokers have these, and the round they are of is taken."""
        for each in letters:
            before = self._tables.pop(each.table, None)
            self._tables[each.table] = TableLetters(
                table=each.table,
                messages=each.count + (before.messages if before is not None else 0),
                last_ms=self._now_ms(),
                reason=each.reason,
                offset=each.offset,
                detail=each.detail,
            )
            if len(self._tables) > MOST_TABLES:
                del self._tables[next(iter(self._tables))]
            self._log(each)

    def recent(self) -> tuple[TableLetters, ...]:
        """By table; of each the last."""
        after = self._now_ms() - RECENT_MS
        return tuple(letters for _, letters in sorted(self._tables.items()) if letters.last_ms > after)

    def _log(self, letters: LettersWritten) -> None:
        now, key = self._now_ms(), (letters.table, letters.reason)
        line = self._lines.get(key)
        if line is not None and line.is_recent(now):
            line.counted(letters.count)
            return
        if line is None and not self._room(now):
            return
        log.warning(
            "messages.dead_lettered",
            stream=self._stream,
            table=letters.table,
            reason=letters.reason,
            messages=letters.count + (line.unlogged if line is not None else 0),
            offset=letters.offset,
            detail=letters.detail,
        )
        self._lines[key] = _Line(now)

    def _room(self, now: int) -> bool:
        """Whether one more table or reason may have a line; makes it from those whose last line is old."""
        if len(self._lines) >= MOST_LINES:
            self._lines = {key: line for key, line in self._lines.items() if line.is_recent(now)}
        return len(self._lines) < MOST_LINES
