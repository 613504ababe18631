"""`blockhouse streams hand-back`: writes metadata v1, so that eBay's aggregator can continue where Blockhouse has
stopped.

Must never touch a stream with a block in flight: what Blockhouse sent has provenance, what that aggregator would send
has not, and the server would store both.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from blockhouse.config.load import load
from blockhouse.config.pipeline import AggregatorConfig
from blockhouse.metadata import codec
from blockhouse.metadata.model import Metadata
from blockhouse.streams import StreamId
from blockhouse_aggregator.coordination.schema_store import SchemaStore
from blockhouse_aggregator.coordination.session import Session
from blockhouse_aggregator.kafka.group import Committed
from blockhouse_aggregator.kafka.group_offsets import committed_offsets, set_offsets
from blockhouse_aggregator.protocol.foreign import hand_back as version_1


def hand_back(
    config: Annotated[Path, typer.Option("--config", "-c", help="YAML configuration of any aggregator of the shard.")],
    yes: Annotated[bool, typer.Option("--yes", help="Do it; without this, only show what would be written.")] = False,
) -> None:
    """Write metadata v1 for every stream of the shard: eBay's aggregator then continues where Blockhouse stopped.

    Stop the shard's aggregators first, gracefully, so that nothing is in flight and the group is empty. Blockhouse can
    take the streams over again at any time.

    Example: blockhouse streams hand-back --config aggregator.yaml --yes
    """
    settings = load(config)
    with Session(settings.zookeeper) as session:
        histories = SchemaStore(session).all()
    prefix = f"{settings.clickhouse.database}."
    names = {history.id: history.name.removeprefix(prefix) for history in histories}
    for cluster in settings.kafka.clusters:
        committed = committed_offsets(cluster, settings.kafka.group, settings.kafka.topic)
        texts = {stream: _text(settings, stream, found, names) for stream, found in sorted(committed.items())}
        for stream, (offset, text) in texts.items():
            typer.echo(f"{stream} at {offset}: {text}")
        if yes and texts:
            set_offsets(cluster, settings.kafka.group, texts)
    typer.echo("Written." if yes else "Nothing was changed; add --yes to do it.")


def _text(settings: AggregatorConfig, stream: StreamId, found: Committed, names: dict[int, str]) -> tuple[int, str]:
    """Offset and metadata to commit. Raises BadParameter naming the stream that is not ready."""
    metadata = codec.decode(found.metadata) if found.metadata else None
    if not isinstance(metadata, Metadata):
        raise typer.BadParameter(f"{stream} holds no metadata of ours: nothing was changed", param_hint="--config")
    try:
        back = version_1(metadata, names, settings.replica)
    except ValueError as error:
        text = f"{stream}: {error}: start Blockhouse, let it finish, stop it gracefully. Nothing was changed"
        raise typer.BadParameter(text, param_hint="--config") from error
    text, offset = codec.encode(back), back.committed_offset
    if len(text) > settings.kafka.offset_metadata_max_units:
        text = f"{stream}: {len(text)} characters do not fit: raise offset.metadata.max.bytes of the broker"
        raise typer.BadParameter(text, param_hint="--config")
    return metadata.position if offset is None else offset, text
