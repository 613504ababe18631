"""Two metadata of version 2, one committed after the other: may the later one follow?

For `before` with position P and a table t, the next block of t may begin at or after lowest(t): its cursor, if it
lags, else P. Between two commits whose numbers follow each other lies one scan at most, hence

    blocks:   each block in flight is the one that was in flight, or begins at or after lowest(t)         (I2, I3)
    cursors:  never fall below lowest(t)                                                                  (I5)
    counts:   messages of the new blocks = growth of `sealed`, in the same window                         (I4)
    pending:  what a table has less of, is in its new block, dead or a hole                               (I4)
    window:   reference + sealed + dead + holes + pending = P; it is closed without a scan               (I4)
    holes:    what is counted as a hole must be one in the log itself                                    (I4)
    epoch:    a later one means an election: the log must still reach P in the earlier one

When commits between the two were not seen, what only ever grows must still not have fallen.
"""

from __future__ import annotations

from blockhouse.metadata.reading import NOTHING, Entry, Reading
from blockhouse_aggregator.verifier.anomaly import EpochReaches, Finding, HolesAreThere, Kind, LogBegins


def contradictions(after: Reading, offset: int) -> list[Finding]:
    """What is wrong with one metadata by itself; `offset` is the Kafka offset it was committed with."""
    found = _entries_alone(after)
    counted = after.reference + after.sealed + after.dead + after.holes + after.pending
    position = after.position
    if counted < position:
        text = f"reference and counts reach {counted}, but the position is {position}: nothing is recorded of the rest"
        found.append(Finding(Kind.GAP, text, None, counted, position - 1))
    elif counted > position:
        text = f"reference and counts reach {counted}, beyond the position {position}: messages were counted twice"
        found.append(Finding(Kind.OVERLAP, text, None, position, counted - 1))
    if offset != after.low:
        text = f"the metadata belongs to offset {after.low}, but was committed with {offset}"
        found.append(Finding(Kind.FOREIGN, text, None, min(offset, after.low), max(offset, after.low)))
    return found


def first(after: Reading, chosen: int | None) -> list[Finding]:
    """What the first commit of a stream claims of the log below and behind its begin; at `chosen` a tool has set the
    stream to start."""
    found: list[Finding] = []
    if after.reference > 0 and after.reference != chosen:
        text = f"the stream begins at {after.reference}, which no metadata has set: what lies below was never read"
        found.append(Finding(Kind.GAP, text, None, 0, after.reference - 1, unless=LogBegins(after.reference)))
    if after.holes:
        found.append(holes(after.reference, after.position, after.holes))
    return found


def holes(begin: int, end: int, count: int) -> Finding:
    """`count` offsets of [begin, end) are recorded as holes: only the log can confirm it."""
    text = f"{count} offsets of [{begin}, {end}) are counted as holes, but the log has messages there"
    return Finding(Kind.GAP, text, None, begin, end - 1, unless=HolesAreThere(begin, end, count))


def _entries_alone(after: Reading) -> list[Finding]:
    position = least = after.position
    wrong: list[int] = []
    for table, (begin, end, messages, _, _, cursor, _) in after.tables.items():
        if begin >= 0:
            if begin < least:
                least = begin
            if not (end < position and 0 < messages <= end - begin + 1):
                wrong.append(table)
        elif cursor < 0:
            wrong.append(table)
        if cursor >= 0:
            if cursor < least:
                least = cursor
            if cursor <= end or cursor > position:
                wrong.append(table)
    found = [_contradiction(table, after.tables[table], position) for table in dict.fromkeys(wrong)]
    if least != after.low:
        text = f"it records everything below {after.low} as stored, but the least offset it names is {least}"
        kind = Kind.GAP if least < after.low else Kind.FOREIGN
        found.append(Finding(kind, text, None, min(least, after.low), max(least, after.low) - 1))
    return found


def _contradiction(table: int, entry: Entry, position: int) -> Finding:
    begin, end, messages, _, _, cursor, _ = entry
    if begin < 0 and cursor < 0:
        return Finding(Kind.FOREIGN, "an entry that is neither in flight nor lags", str(table))
    if begin >= 0 and end >= position:
        text = f"block [{begin}, {end}] lies beyond the position {position}"
        return Finding(Kind.FOREIGN, text, str(table), begin, end)
    if begin >= 0 and not 0 < messages <= end - begin + 1:
        text = f"block [{begin}, {end}] cannot hold {messages} messages"
        return Finding(Kind.FOREIGN, text, str(table), begin, end)
    if cursor > position:
        text = f"the cursor {cursor} is beyond the position {position}: what lies between would be passed over"
        return Finding(Kind.GAP, text, str(table), position, cursor - 1)
    text = f"the cursor {cursor} lies in the block in flight [{begin}, {end}]: its end would be loaded twice"
    return Finding(Kind.OVERLAP, text, str(table), cursor, end)


def succession(before: Reading, after: Reading, *, adjacent: bool) -> list[Finding]:
    """What `after` may not contain once `before` was committed; `adjacent`: no other commit lies between them."""
    found = _broken(before, after, adjacent)
    abandoned = _abandoned(before, after) if found else {}
    dead = max(0, before.dead - after.dead) if abandoned else 0
    if abandoned and not _broken(_without(before, abandoned, dead), after, adjacent):
        return [_recut(table, was) for table, was in abandoned.items()]
    return found


def _abandoned(before: Reading, after: Reading) -> dict[int, Entry]:
    """Blocks that may have been abandoned: gone, and their messages pending again or in a block of other bounds."""
    found: dict[int, Entry] = {}
    for table, was in before.tables.items():
        now = after.tables.get(table, NOTHING)
        again = now[5] == was[0] if now[0] < 0 else was[0] <= now[0] <= was[1] and now[:2] != was[:2]
        if was[0] >= 0 and again:
            found[table] = was
    return found


def _without(before: Reading, abandoned: dict[int, Entry], dead: int) -> Reading:
    """The same, had the messages of these blocks been pending from the blocks' begins on, with those in the range of
    the first that were dead-lettered: each decision is committed by itself."""
    first = min(abandoned)
    pending = {
        t: (-1, -1, 0, "", 0, was[0], was[6] + was[2] + (dead if t == first else 0)) for t, was in abandoned.items()
    }
    messages = sum(was[2] for was in abandoned.values())
    return before._replace(
        sealed=before.sealed - messages,
        dead=before.dead - dead,
        pending=before.pending + messages + dead,
        tables=before.tables | pending,
    )


def _recut(table: int, was: Entry) -> Finding:
    text = (
        f"block [{was[0]}, {was[1]}] of {was[2]} messages was abandoned and its messages are loaded again, as "
        "`blockhouse streams recut` does: doubled, if any row of it was stored; compare with `blockhouse audit`"
    )
    return Finding(Kind.RECUT, text, str(table), was[0], was[1])


def _broken(before: Reading, after: Reading, adjacent: bool) -> list[Finding]:
    found: list[Finding] = []
    if after.position < before.position:
        text = f"the position went back from {before.position} to {after.position}"
        found.append(Finding(Kind.BACKWARD, text, None, after.position, before.position - 1))
    old, floor = before.tables, before.position
    sealed_now = 0
    for table, entry in after.tables.items():
        begin, cursor = entry[0], entry[5]
        was = old.get(table, NOTHING)
        lowest = was[5] if was[5] >= 0 else floor
        if begin >= 0 and not (was[0] == begin and was[:5] == entry[:5]):
            sealed_now += entry[2]
            if begin < lowest:
                found.append(_misplaced(table, was, entry, lowest))
        if 0 <= cursor < lowest:
            text = f"the cursor went back from {lowest} to {cursor}"
            found.append(Finding(Kind.BACKWARD, text, str(table), cursor, lowest - 1))
    # That more was sealed than was counted follows from a block that overlaps: it is reported once.
    found += [f for f in _window(before, after, sealed_now, adjacent) if not (found and f.kind is Kind.OVERLAP)]
    if adjacent:
        found += _pending(before, after)
    return found


def of_the_log(before: Reading, after: Reading) -> list[Finding]:
    """What only the log can settle: holes that were counted between the two, and what an election left of it."""
    found: list[Finding] = []
    begin = min([before.position, *(entry[5] for entry in before.tables.values() if entry[5] >= 0)])
    counted = after.holes - before.holes
    if after.reference == before.reference and counted > 0 and after.position > begin:
        found.append(holes(begin, after.position, counted))
    if before.leader_epoch >= 0 and after.leader_epoch > before.leader_epoch:
        found.append(truncated(before))
    if 0 <= after.leader_epoch < before.leader_epoch and after.position >= before.position:
        text = f"the leader epoch of the position fell from {before.leader_epoch} to {after.leader_epoch}"
        found.append(Finding(Kind.TRUNCATED, text, None, before.position, after.position))
    return found


def truncated(known: Reading) -> Finding:
    """The position was read in an epoch that no longer reaches so far."""
    text = (
        f"position {known.position} was read in leader epoch {known.leader_epoch}, which ends below it now: the log "
        "was cut and written again; compare with `blockhouse audit`"
    )
    excuse = EpochReaches(known.leader_epoch, known.position)
    return Finding(Kind.TRUNCATED, text, None, known.low, known.position - 1, unless=excuse)


def _misplaced(table: int, was: Entry, entry: Entry, lowest: int) -> Finding:
    """A block that begins where its table may not. Example: P = 20 and [10, 14] in flight; now [12, 16], or [3, 5]."""
    begin, end = entry[0], entry[1]
    old_begin, old_end = was[0], was[1]
    if (begin, end) == (old_begin, old_end):
        text = (
            f"block [{begin}, {end}] is recorded again as another one: {was[2]} messages, {was[3]}, intent of "
            f"{was[4]} became {entry[2]} messages, {entry[3]}, intent of {entry[4]}"
        )
        return Finding(Kind.OVERLAP, text, str(table), begin, end)
    if old_begin >= 0 and begin <= old_end and old_begin <= end:
        text = f"block [{begin}, {end}] overlaps [{old_begin}, {old_end}], which was in flight"
        return Finding(Kind.OVERLAP, text, str(table), max(begin, old_begin), min(end, old_end))
    if end < lowest:
        text = f"block [{begin}, {end}] lies before {lowest}, below which nothing was left to load"
        return Finding(Kind.BACKWARD, text, str(table), begin, end)
    text = f"block [{begin}, {end}] overlaps what is below {lowest}, where nothing was left to load"
    return Finding(Kind.OVERLAP, text, str(table), begin, lowest - 1)


def _window(before: Reading, after: Reading, sealed_now: int, adjacent: bool) -> list[Finding]:
    if after.reference < before.reference:
        text = f"the reference of the counts went back from {before.reference} to {after.reference}"
        return [Finding(Kind.BACKWARD, text, None, after.reference, before.reference - 1)]
    if after.reference > before.reference:
        return _closed(before, after) if adjacent else []
    grown = after.sealed - before.sealed
    if grown < 0 or after.dead < before.dead or after.holes < before.holes:
        text = (
            f"counts fell: sealed, dead, holes were {before.sealed}, {before.dead}, {before.holes}, now "
            f"{after.sealed}, {after.dead}, {after.holes}: messages counted before are counted no more"
        )
        return [Finding(Kind.GAP, text, None, before.reference, after.position - 1)]
    if grown > sealed_now and adjacent:
        text = f"{grown} more messages are counted as sealed, but the new blocks hold {sealed_now}"
        return [Finding(Kind.GAP, text, None, before.low, after.position - 1)]
    if grown < sealed_now:
        text = f"the new blocks hold {sealed_now} messages, but only {grown} more are counted as sealed"
        return [Finding(Kind.OVERLAP, text, None, before.low, after.position - 1)]
    return []


def _closed(before: Reading, after: Reading) -> list[Finding]:
    """A window is closed by a commit of its own: nothing is scanned with it, nothing in flight, all counts are 0."""
    if after.sealed or after.dead or after.holes or any(entry[0] >= 0 for entry in after.tables.values()):
        text = f"the reference moved from {before.reference} to {after.reference} without closing the window"
        return [Finding(Kind.GAP, text, None, before.reference, after.position - 1)]
    if after.position > before.position:
        text = (
            f"the window was closed and the position moved from {before.position} to {after.position}: "
            "what was scanned is counted nowhere, and it is still in the log"
        )
        return [Finding(Kind.GAP, text, None, before.position, after.position - 1, unless=LogBegins(after.position))]
    return []


def _pending(before: Reading, after: Reading) -> list[Finding]:
    """Pending messages leave a table into a block, as dead letters or, counted, as holes: by no other way."""
    found: list[Finding] = []
    same = after.reference == before.reference
    excused = (after.dead - before.dead) + (after.holes - before.holes) if same else 0
    for table, was in before.tables.items():
        if not was[6]:
            continue
        now = after.tables.get(table, NOTHING)
        taken = now[2] if now[0] >= 0 and now[:5] != was[:5] else 0
        lost = was[6] - now[6] - taken
        if lost > max(0, excused):
            text = f"{was[6]} messages were pending from {was[5]} on: {lost} of them are in no block, dead or a hole"
            found.append(Finding(Kind.GAP, text, str(table), was[5], before.position - 1))
    return found
