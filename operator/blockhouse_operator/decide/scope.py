"""Whose pipelines are they: operators of two releases that serve one zone of one namespace must not undo each other.

A Lease in the namespace has an entry per zone: who serves it, and until when. The entries are of releases, not of
processes: the leader's election inside a release is another Lease. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

SECONDS = 180.0
"""An entry that was not renewed for so long counts no more."""
RENEW_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Entry:
    """Who serves a zone, and the Unix time of the last renewal."""

    holder: str
    renewed: float


@dataclass(frozen=True, slots=True)
class Claim:
    """`foreign` are the holders of zones that another release serves; `entries` are to be written unless they are
    None: then nothing is due."""

    foreign: Mapping[str, str]
    entries: Mapping[str, Entry] | None = None


def claim(zones: Iterable[str], holder: str, known: Mapping[str, Entry], now: float) -> Claim:
    """Serve `zones` at Unix time `now`: all of them or none, so that two releases never share a pipeline by halves."""
    mine = sorted(set(zones))
    foreign = {
        zone: known[zone].holder
        for zone in mine
        if zone in known and known[zone].holder != holder and now - known[zone].renewed < SECONDS
    }
    if foreign:
        return Claim(foreign)
    due = any(
        zone not in known or known[zone].holder != holder or now - known[zone].renewed >= RENEW_SECONDS for zone in mine
    )
    if not due:
        return Claim({})
    kept = {zone: entry for zone, entry in known.items() if zone not in mine and now - entry.renewed < SECONDS}
    return Claim({}, {**kept, **{zone: Entry(holder, now) for zone in mine}})
