"""The pictures of docs/dashboards.md: panels as a run of `make alerts` shows them, drawn by `e2e.chaos.pictures`."""

from __future__ import annotations

from collections.abc import Iterator

from e2e.chaos.pictures import SHOWN, picture

FOLDER = "pictures"
"""Of the pictures, in docs/."""
CAPTIONS = {
    "Alerts that fire": "Each rule waits for its `for` first. Streams without an owner are those of the killed shard;"
    " the other three are about the frozen replica, which no insert of its shard can do without.",
    "Rows, ten largest tables": "Both shards have stopped while the line is at 0: every table is in both. What has"
    " waited in Kafka is stored in seconds, the killed shard's when it is back, the other one's when its replica"
    " thaws.",
    "Inserts to be tried again": "285 is too few live replicas for the quorum, `connection` a server that did not"
    " answer. Later nothing is sent that cannot be stored: blocks wait.",
    "Blocks rebuilt and sent again": "Each insert that failed makes a replay of its block; the provenance of the rows"
    " decides those of new owners.",
    "Commits": "All were committed here. One that is refused has a line of its own; its stream rebuilds.",
    "Streams owned": "The aggregator beside the frozen replica releases its streams, and the other one of the shard has"
    " all four; a killed one has no line.",
    "Messages not stored": "A stream without an owner has no line, for no one asks where it ends: its alert is"
    " `BlockhouseStreamUnowned`.",
    "Oldest message not stored": "It grows by a second a second where nothing is stored. The dashed line is the limit"
    " of `BlockhouseLagGrows`.",
}
"""By the title of the panel: what is to be seen in its picture."""


def section(uid: str) -> Iterator[str]:
    """The lines of the page with a board's pictures, each with its caption."""
    for title in SHOWN.get(uid, ()):
        yield f"**{title}.** {CAPTIONS[title]}"
        yield ""
        yield f"![{title}]({FOLDER}/{picture(uid, title)})"
        yield ""
