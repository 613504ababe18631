"""Two metadata of version 0 or 1, one committed after the other: the rules published for the original verifier.

With M before M', and for every table t that both name:

    backward:  M'.t.end < M.t.begin
    overlap:   M.t and M'.t share offsets and are not the same block
    gap:       M.reference + sum of M.count < M'.min            (version 1 with a reference only)

These formats have no number, no position and no count of holes. Hence a lost commit is not seen, and where a log has
holes (transactions, compaction) the gap rule cannot be trusted: see `docs/verifier.md`.
"""

from __future__ import annotations

from blockhouse.metadata.ebay import EbayMetadata
from blockhouse_aggregator.verifier.anomaly import Finding, Kind


def succession(before: EbayMetadata, after: EbayMetadata) -> list[Finding]:
    """What `after` may not contain once `before` was committed."""
    found: list[Finding] = []
    for name, now in after.tables.items():
        was = before.tables.get(name)
        if was is None or (was.begin, was.end) == (now.begin, now.end):
            continue
        if now.end < was.begin and now.begin < was.begin:
            text = f"block [{now.begin}, {now.end}] lies before [{was.begin}, {was.end}]"
            found.append(Finding(Kind.BACKWARD, text, name, now.begin, was.begin - 1))
        elif now.begin <= was.end and was.begin <= now.end:
            text = f"block [{now.begin}, {now.end}] overlaps [{was.begin}, {was.end}]"
            found.append(Finding(Kind.OVERLAP, text, name, max(now.begin, was.begin), min(now.end, was.end)))
    return found + _gap(before, after)


def _gap(before: EbayMetadata, after: EbayMetadata) -> list[Finding]:
    if before.reference is None or before.reference < 0 or after.committed_offset is None:
        return []
    counted = before.reference + sum(table.count or 0 for table in before.tables.values())
    if counted >= after.committed_offset:
        return []
    text = f"counts reach {counted}, but everything below {after.committed_offset} is recorded as stored"
    return [Finding(Kind.GAP, text, None, counted, after.committed_offset - 1)]
