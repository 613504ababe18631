"""Whose pipelines are they: operators of two releases that serve one zone of one namespace must not undo each other.

A Lease in the namespace has an entry per zone: who serves it, and when that was renewed. The entries are of releases,
not of processes: the leader's election inside a release is another Lease. Clocks of two operators may be apart by more
than an entry lasts, so its age is for how long who reads it has seen it unchanged. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

SECONDS = 180.0
"""An entry that was seen unchanged for so long counts no more."""
RENEW_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Entry:
    """Who serves a zone, and the Unix time of the last renewal by the holder's own clock."""

    holder: str
    renewed: float


@dataclass(frozen=True, slots=True)
class Claim:
    """`foreign` are the holders of zones that another release serves; `entries` are to be written unless they are
    None: then nothing is due."""

    foreign: Mapping[str, str]
    entries: Mapping[str, Entry] | None = None


def claim(
    zones: Iterable[str], holder: str, known: Mapping[str, Entry], ages: Mapping[str, float], now: float
) -> Claim:
    """Serve `zones` at Unix time `now`: all of them or none, so that two releases never share a pipeline by halves.

    `ages` are those of the entries `known`, in seconds; infinite for one of the holder's that it has not renewed yet.
    """
    mine = sorted(set(zones))
    foreign = {
        zone: known[zone].holder
        for zone in mine
        if zone in known and known[zone].holder != holder and ages[zone] < SECONDS
    }
    if foreign:
        return Claim(foreign)
    due = any(zone not in known or known[zone].holder != holder or ages[zone] >= RENEW_SECONDS for zone in mine)
    if not due:
        return Claim({})
    kept = {
        zone: entry
        for zone, entry in known.items()
        if zone not in mine and (entry.holder == holder or ages[zone] < SECONDS)
    }
    return Claim({}, {**kept, **{zone: Entry(holder, now) for zone in mine}})
