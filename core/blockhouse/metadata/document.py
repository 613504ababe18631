"""The JSON form of a metadata, as `docs/metadata.md` lists it: for people and scripts, never committed anywhere."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from blockhouse.metadata.ebay import EbayMetadata, EbayTable
from blockhouse.metadata.errors import MetadataInvalid
from blockhouse.metadata.model import InFlight, Metadata, TableEntry, Window

Json = dict[str, Any]


class _Strict(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")


class _Table(_Strict):
    begin: int
    end: int
    count: int | None = None
    id: int | None = None
    revision: int | None = None
    crc: int | None = None
    intent_ms: int | None = None
    cursor: int | None = None
    pending: int = 0


class _Window(_Strict):
    reference: int
    sealed: int
    dead: int
    holes: int
    pending: int | None = None


class _Document(_Strict):
    version: int | None = None
    replica: str | None = None
    reference: int | None = None
    committed_offset: int | None = None
    position: int | None = None
    seq: int | None = None
    intent_ms: int | None = None
    topic_id: str | None = None
    leader_epoch: int = -1
    window: _Window | None = None
    tables: dict[str, _Table]


def to_json(metadata: Metadata | EbayMetadata, names: Mapping[int, str] | None = None) -> Json:
    """Every field of `metadata`, offsets absolute. `names` gives tables of version 2 their names by id."""
    if isinstance(metadata, EbayMetadata):
        return {
            "version": metadata.version,
            "replica": metadata.replica,
            "reference": metadata.reference,
            "committed_offset": metadata.committed_offset,
            "tables": {
                name: {"begin": table.begin, "end": table.end, "count": table.count}
                for name, table in metadata.tables.items()
            },
        }
    window = metadata.window
    return {
        "version": 2,
        "replica": metadata.replica,
        "reference": window.reference,
        "committed_offset": metadata.committed_offset,
        "position": metadata.position,
        "seq": metadata.seq,
        "intent_ms": metadata.intent_ms,
        "topic_id": metadata.topic_id,
        "leader_epoch": metadata.leader_epoch,
        "window": {
            "reference": window.reference,
            "sealed": window.sealed,
            "dead": window.dead,
            "holes": window.holes,
            "pending": metadata.pending,
        },
        "tables": {(names or {}).get(entry.table, str(entry.table)): _entry_json(entry) for entry in metadata.tables},
    }


def from_json(text: str | bytes, version: int | None = None) -> Metadata | EbayMetadata:
    """The metadata that `to_json` printed, to be written as `version` (1 or 2; default: the document's own).

    Raises MetadataInvalid naming every field that is missing or wrong.
    """
    try:
        document = _Document.model_validate_json(text)
    except ValidationError as error:
        raise MetadataInvalid(f"not the JSON of a metadata: {_listed(error)}") from error
    chosen = document.version if version is None else version
    if chosen not in (1, 2):
        raise MetadataInvalid(f"version {chosen} cannot be written: only 1 and 2 can")
    if document.version is not None and (chosen == 2) != (document.version == 2):
        raise MetadataInvalid(f"metadata of version {document.version} cannot be written as version {chosen}")
    metadata = _ebay(document) if chosen == 1 else _ours(document)
    if document.committed_offset is not None and document.committed_offset != metadata.committed_offset:
        raise MetadataInvalid(
            f"committed_offset is {document.committed_offset}, but by the tables it is {metadata.committed_offset}"
        )
    return metadata


def _entry_json(entry: TableEntry) -> Json:
    block, cursor = entry.in_flight, entry.cursor
    shown: Json = {"id": entry.table}
    if block is not None:
        shown |= {"begin": block.begin, "end": block.end, "count": block.messages}
        shown |= {"revision": block.revision, "crc": block.crc, "intent_ms": block.intent_ms}
    elif cursor is not None:
        shown |= {"begin": cursor, "end": cursor - 1, "count": 0}
    if cursor is not None:
        shown |= {"cursor": cursor, "pending": entry.pending}
    return shown


def _ebay(document: _Document) -> EbayMetadata:
    tables = {name: EbayTable(t.begin, t.end, t.count) for name, t in document.tables.items()}
    return EbayMetadata(1, document.replica, document.reference, tables)


def _ours(document: _Document) -> Metadata:
    window = _required(document, "window")
    if document.reference is not None and document.reference != window.reference:
        raise MetadataInvalid(f"reference is {document.reference}, but window.reference is {window.reference}")
    metadata = Metadata(
        replica=_required(document, "replica"),
        seq=_required(document, "seq"),
        intent_ms=_required(document, "intent_ms"),
        topic_id=_required(document, "topic_id"),
        leader_epoch=document.leader_epoch,
        position=_required(document, "position"),
        window=Window(window.reference, window.sealed, window.dead, window.holes),
        tables=tuple(sorted((_entry(name, t) for name, t in document.tables.items()), key=lambda e: e.table)),
    )
    if window.pending not in (None, metadata.pending):
        raise MetadataInvalid(f"window.pending is {window.pending}, but the tables have {metadata.pending}")
    return metadata


def _entry(name: str, table: _Table) -> TableEntry:
    number = table.id if table.id is not None else int(name) if name.isdecimal() else None
    if number is None:
        raise MetadataInvalid(f"tables.{name}.id: missing, and the name is not an id")
    given = (table.crc, table.revision, table.intent_ms)
    if given == (None, None, None):
        return TableEntry(number, None, table.cursor, table.pending)
    crc, revision, intent_ms = given
    if crc is None or revision is None or intent_ms is None or table.count is None:
        raise MetadataInvalid(f"tables.{name}: a block in flight needs count, crc, revision and intent_ms")
    block = InFlight(table.begin, table.end, table.count, revision, crc, intent_ms)
    return TableEntry(number, block, table.cursor, table.pending)


def _required(document: _Document, field: str) -> Any:
    value = getattr(document, field)
    if value is None:
        raise MetadataInvalid(f"metadata of version 2 needs {field}")
    return value


def _listed(error: ValidationError) -> str:
    return "; ".join(f"{'.'.join(map(str, e['loc'])) or 'document'}: {e['msg']}" for e in error.errors())
