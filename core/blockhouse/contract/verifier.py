"""What a verifier answers: its verdict about everything that was committed, and each anomaly it found."""

from __future__ import annotations

from typing import Literal

from blockhouse.contract.base import Answer, Endpoint

Time = str
"""UTC to the millisecond, such as `2026-11-21T09:00:00.000Z`: texts order as the times do."""


WATCHING = "watching"
"""A `Coverage.state`: the cluster is read to its end and answers."""


class AnomalyReport(Answer):
    """Something wrong with one stream, and the evidence."""

    id: str
    """The same however often the history is read."""
    kind: str
    """What is wrong, one of the kinds in docs/verifier.md; a later version may know more."""
    message: str
    """What is wrong, in full."""
    stream: str
    """`cluster/topic/partition`."""
    cluster: str
    """The Kafka cluster."""
    group: str
    """The consumer group."""
    table: str | None
    """`database.table`, or the table's number where its name is not known; null: no single table."""
    first: int | None
    """First offset it is about; null: no offset."""
    last: int | None
    """Last offset it is about; null: no offset."""
    before: str
    """The commit before, as it is in Kafka."""
    after: str
    """The commit that is at fault."""
    at: Time
    """The broker's time of that commit."""
    found: Time
    """When the verifier found it."""
    ended: Time | None
    """When it was over; null: it lasts, or it is of a kind that does not end."""
    log_partition: int
    """Where the commit is in `__consumer_offsets`."""
    log_offset: int
    """Its offset there."""


class HistoryCoverage(Answer):
    """What was read of a Kafka cluster's history of commits, and what was not."""

    partitions: int
    """Partitions of `__consumer_offsets` that were read."""
    streams: int
    """Streams of the pipeline that were seen."""
    commits: int
    """Commits that were judged."""
    unseen: int
    """Commits that compaction took away before they could be seen."""
    missing_records: int
    """Records that are no longer in the log."""
    unchecked: int = 0
    """Claims of holes whose range was too long to read. Absent: the verifier takes every claim on trust."""
    tombstones: int
    """Deletions of a committed offset."""
    damaged: int
    """Records that cannot be parsed."""
    unknown_versions: int
    """Records of a version that the verifier does not know."""
    earliest: Time | None
    """The oldest commit; null: none."""
    latest: Time | None
    """The newest commit; null: none."""


class Coverage(HistoryCoverage):
    """The same while the cluster is being watched."""

    state: str
    """`watching`, `reading` (history that was there at the start), or `unreachable`."""
    problem: str
    """Why it is not watched; empty when it is."""
    caught_up: bool
    """Whether all history was read."""
    behind: int
    """Records not read yet, as of the last time the logs were read."""
    remembered: Time | None
    """When the verifier last saved how far it has come; null: never."""
    looked: Time | None
    """When it last asked for the ends of the logs; null: never."""
    other_topics: int
    """Commits of topics that are not the pipeline's."""
    breaks: int
    """How often the history was interrupted."""


class Verdict(Answer):
    """The verifier's judgement of the pipeline."""

    pipeline: str
    """The pipeline."""
    verdict: Literal["clean", "anomalies", "unknown"]
    """`unknown`: no anomaly is known, but a cluster is not read to its end, or cannot be reached."""
    anomalies: int
    """Anomalies that are kept."""
    streams: int
    """Streams that were seen."""
    since: Time | None
    """The oldest commit that was judged; null: none."""
    at: Time
    """When this was written."""
    coverage: dict[str, Coverage]
    """By Kafka cluster."""
    problems: tuple[str, ...] = ()
    """Why nothing can be clean, such as a group of which nothing was committed. Absent: the verifier does not look."""
    latest: AnomalyReport | None
    """The newest anomaly; null: none."""

    @property
    def commits(self) -> int:
        """Commits judged in all clusters."""
        return sum(each.commits for each in self.coverage.values())

    @property
    def unseen(self) -> int:
        """Commits of all clusters that compaction took away unseen."""
        return sum(each.unseen for each in self.coverage.values())


_UNAUTHORIZED = {401: "The token is missing or wrong."}
VERDICT = Endpoint("GET", "/verdict", "The verdict of the verifier.", Verdict, refusals=_UNAUTHORIZED)
ANOMALIES = Endpoint(
    "GET", "/anomalies", "Every anomaly that is kept, newest first.", AnomalyReport, many=True, refusals=_UNAUTHORIZED
)
ENDPOINTS = (VERDICT, ANOMALIES)
