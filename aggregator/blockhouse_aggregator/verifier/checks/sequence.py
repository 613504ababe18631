"""Which rule a commit has to keep, given what was committed for the stream before it: the whole decision, total.

The order in which a stream's commits lie in `__consumer_offsets` is the order in which they were committed. No clock is
asked: the times in commits and records decide nothing here.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from blockhouse.metadata import codec
from blockhouse.metadata.ebay import EbayMetadata
from blockhouse.metadata.errors import MetadataUnreadable
from blockhouse.metadata.reading import Reading, read
from blockhouse_aggregator.verifier.anomaly import CommitCompacted, Finding, Kind
from blockhouse_aggregator.verifier.checks import published, succession

Known = Reading | EbayMetadata


@dataclass(frozen=True, slots=True)
class Judgement:
    """`known` is what the next commit is compared with, `unseen` how many commits are missing between the two,
    `chosen` the offset at which a tool has set the stream to start, before its first metadata."""

    known: Known | None
    findings: tuple[Finding, ...] = ()
    unseen: int = 0
    chosen: int | None = None


@dataclass(frozen=True, slots=True)
class Lacking:
    """How many records the offsets topic lacks between a commit and the one before it: that many commits may have gone
    unseen, not one more, and none unless `excuse` holds. None: there is no commit before it, or it was not read."""

    records: int
    excuse: CommitCompacted | None = None


def judge(before: Known | None, offset: int, text: str, lacking: Lacking, chosen: int | None = None) -> Judgement:
    """Judge a commit of `text` with the Kafka offset `offset`; `before` is the last readable one of the stream, and
    `chosen` as in the judgement of the commit before."""
    if not text:
        return _bare(before, offset)
    try:
        after: Known = read(text) if text.startswith("2;") else _foreign_format(text, offset)
    except MetadataUnreadable as error:
        finding = Finding(Kind.UNREADABLE, str(error), None, offset, offset)
        return Judgement(before, (finding,), chosen=chosen)
    if isinstance(after, Reading):
        return _ours(before, after, offset, lacking, chosen)
    if isinstance(before, EbayMetadata):
        return Judgement(after, tuple(published.succession(before, after)))
    if before is None:
        return Judgement(after)
    return Judgement(after, _handed_back(before, after, offset))


def _foreign_format(text: str, offset: int) -> EbayMetadata:
    decoded = codec.decode(text, offset)
    assert isinstance(decoded, EbayMetadata)  # version 2 was read before, any other of ours is unreadable
    return decoded


def _bare(before: Known | None, offset: int) -> Judgement:
    """An offset without metadata. Before the first metadata that is how a start is chosen; later, a reset."""
    if before is None:
        return Judgement(None, chosen=offset)
    text = f"offset {offset} was committed without metadata: a tool, or a consumer that is none of ours"
    return Judgement(before, (Finding(Kind.FOREIGN, text, None, offset, offset),))


def _ours(before: Known | None, after: Reading, offset: int, lacking: Lacking, chosen: int | None) -> Judgement:
    alone = succession.contradictions(after, offset)
    if before is None:
        return Judgement(after, (*alone, *_begun(after, lacking, chosen)))
    if isinstance(before, EbayMetadata):
        return Judgement(after, (*alone, *_taken_over(before, after)))
    if after.text == before.text:
        return Judgement(before)
    if after.topic_id != before.topic_id and after.topic_id and before.topic_id:
        begun, unseen = _other_topic(before, after, lacking)
        return Judgement(after, (*alone, *begun), unseen)
    if after.seq == 1 and before.seq > 1:
        return Judgement(after, (*alone, _restarted(before, after)))
    log = succession.of_the_log(before, after)
    if after.seq == before.seq + 1:
        return Judgement(after, (*alone, *succession.succession(before, after, adjacent=True), *log))
    order, unseen = _out_of_order(before, after, lacking)
    return Judgement(after, (*alone, *order, *succession.succession(before, after, adjacent=False), *log), unseen)


def _begun(after: Reading, lacking: Lacking, chosen: int | None) -> list[Finding]:
    """The first commit there is of a stream."""
    if after.seq == 1:
        return succession.first(after, chosen)
    if after.seq - 1 <= lacking.records:
        return []  # what was committed before the oldest record that is left is not known, and not counted
    return [_not_the_first(after, lacking)]


def _not_the_first(after: Reading, lacking: Lacking) -> Finding:
    text = (
        f"the history of the stream begins with number {after.seq} of topic id {after.topic_id}: the commits before it "
        f"are not in the history, which lacks {lacking.records} records"
    )
    return Finding(Kind.ORDER, text, None, 0, after.position)


def _unless_compacted(lacking: Lacking, finding: Finding) -> list[Finding]:
    """Records of others may be all that is missing: the cleaner must have been at ours."""
    return [] if lacking.excuse is None else [replace(finding, unless=lacking.excuse)]


def _taken_over(before: EbayMetadata, after: Reading) -> tuple[Finding, ...]:
    """From another format: what was stored or in flight there must not be loaded a second time."""
    low = before.committed_offset
    if low is None or after.low >= low:
        return ()
    text = f"version 2 begins at {after.low}, but everything below {low} was recorded as stored"
    return (Finding(Kind.BACKWARD, text, None, after.low, low - 1),)


def _handed_back(before: Reading, after: EbayMetadata, offset: int) -> tuple[Finding, ...]:
    """To another format and its writer, as `blockhouse streams hand-back` does it: at rest, exactly where it was."""
    if any(entry[0] >= 0 for entry in before.tables.values()) or any(t.in_flight for t in after.tables.values()):
        text = f"version {after.version} was committed after version 2 with a block in flight: two writers of two kinds"
        return (Finding(Kind.FOREIGN, text, None, offset, offset),)
    if after.committed_offset is None or after.committed_offset == before.low:
        return ()
    first, last = sorted((before.low, after.committed_offset))
    text = f"version {after.version} continues at {after.committed_offset}, but version 2 stood at {before.low}"
    kind = Kind.BACKWARD if after.committed_offset < before.low else Kind.GAP
    return (Finding(kind, text, None, first, last - 1),)


def _other_topic(before: Reading, after: Reading, lacking: Lacking) -> tuple[list[Finding], int]:
    """A topic that was created again starts its numbers again; anything else mixes the offsets of two topics."""
    if after.seq == 1:
        return succession.first(after, None), 0
    text = (
        f"number {after.seq} is of topic id {after.topic_id}, number {before.seq} was of {before.topic_id}: "
        "a new topic begins with number 1"
    )
    finding = Finding(Kind.FOREIGN, text, None, after.low, after.position)
    if after.seq - 1 <= lacking.records:
        return _unless_compacted(lacking, finding), after.seq - 1
    return [finding], 0


def _restarted(before: Reading, after: Reading) -> Finding:
    start = after.reference
    text = (
        f"the stream was started afresh at {start} after number {before.seq} at position {before.position}: what was "
        "in flight is forgotten; compare with `blockhouse audit`"
    )
    first, last = sorted((start, before.low))
    return Finding(Kind.RESTART, text, None, first, max(last, before.position) - 1)


def _out_of_order(before: Reading, after: Reading, lacking: Lacking) -> tuple[list[Finding], int]:
    """A number that is not the next one, and how many commits went unseen."""
    skipped = after.seq - before.seq - 1
    who = f"number {before.seq} of {before.replica}, then {after.seq} of {after.replica}"
    if skipped > 0:
        text = (
            f"{who}: {skipped} commits between them are not in the history, which lacks {lacking.records} records and "
            "still has the commit before"
        )
        finding = Finding(Kind.ORDER, text, None, before.position, after.position)
        if skipped <= lacking.records:
            return _unless_compacted(lacking, finding), skipped
        return [finding], min(lacking.records, skipped)
    kind = Kind.ORDER if after.replica == before.replica else Kind.INTERLEAVED
    text = f"{who}: a commit that does not follow the one before it"
    first, last = sorted((before.low, after.low))
    return [Finding(kind, text, None, first, max(last, before.position, after.position) - 1)], 0
