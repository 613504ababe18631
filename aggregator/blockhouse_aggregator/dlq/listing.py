"""Dead letters as a table: in 80 columns no word is broken, and a key can be pasted into `show` and `replay`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence, Set
from datetime import UTC, datetime

from rich.box import SIMPLE_HEAD
from rich.table import Table

from blockhouse_aggregator.dlq.letters import Letter


def letters_table(found: Sequence[Letter], loaded: Set[str], limit: int) -> Table:
    """A line for each of the first `limit` letters that were `found`; `loaded` are the keys of those that were loaded
    after all. A key has the topic's id where its place alone is not clear, also by a letter that is not shown. Sizes
    give way to what became of letters, where anything did."""
    letters, places = found[:limit], Counter(letter.place for letter in found)
    fates = [_fate(letter, loaded) for letter in letters]
    last = "since then" if any(fates) else "bytes"
    shown = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for name in ("key", "table", "reason", "time", last):
        shown.add_column(name, overflow="fold", no_wrap=name in ("reason", "time"))
    for letter, fate in zip(letters, fates, strict=True):
        key = letter.place if places[letter.place] == 1 else letter.key
        time = f"{datetime.fromtimestamp(letter.timestamp_ms / 1000, UTC):%Y-%m-%d %H:%M}"
        shown.add_row(key, letter.table, letter.reason, time, fate if any(fates) else str(letter.size))
    return shown


def _fate(letter: Letter, loaded: Set[str]) -> str:
    if letter.replayed:
        return f"sent again as {letter.replayed}"
    return "loaded after all" if letter.key in loaded else ""
