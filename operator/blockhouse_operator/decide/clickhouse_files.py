"""Which configuration files the servers of a pipeline get: those of the spec, or what they had before. Pure.

A source that is missing, or whose content cannot be used, takes nothing away: the files of the servers stay as they
were all together, for one may need another, and each file of users stays as it was by itself.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from blockhouse_operator.api.clickhouse_files import MountedFile
from blockhouse_operator.desired.clickhouse_files import CONFIG, USER_SLOTS, total_size

LARGEST = 400 << 10
"""Bytes of all files at most: those of before are beside them in the Secret until no pod mounts them."""


@dataclass(frozen=True, slots=True)
class GivenFile:
    """A file of the spec: its text as it is published, or what is wrong. `missing`: its source is not there."""

    name: str
    text: str = ""
    problem: str = ""
    missing: bool = False


@dataclass(frozen=True, slots=True)
class PublishedFiles:
    """What pods have: the files of the servers as shards were given them, None where there is no shard yet; and texts
    of the files of users, by name."""

    config: tuple[MountedFile, ...] | None
    users: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class FilesPlan:
    """`config` is what shards are given, `data` texts by key of the Secret, `users` names of the files of users in the
    order of their keys. `held`: no shard may be created yet, for it would begin without files that it is to have."""

    config: tuple[MountedFile, ...] = ()
    data: Mapping[str, str] = field(default_factory=dict)
    users: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    missing: bool = False
    """Whether the first of the problems is a source that is not there."""
    held: bool = False


def plan_files(config: Sequence[GivenFile], users: Sequence[GivenFile], before: PublishedFiles, salt: str) -> FilesPlan:
    """`salt` is a secret text, the same as long as the Secret is there."""
    faults = [file for file in (*config, *users) if file.problem]
    size = total_size([file.text for file in (*config, *users)])
    if size > LARGEST:
        why = f"all files have {size >> 10} KiB, and may have {LARGEST >> 10}"
        faults = [*faults, *(GivenFile(file.name, problem=why) for file in config[:1] or users[:1])]
    shown = tuple(f"{file.name}: {file.problem}" for file in faults)
    data: dict[str, str] = {}
    names: list[str] = []
    for file in sorted(users, key=lambda one: one.name):
        text = before.users.get(file.name, "") if file.problem or size > LARGEST else file.text
        if text:
            data[USER_SLOTS[len(names)]] = text
            names.append(file.name)
    missing = bool(faults) and faults[0].missing
    if any(file.problem for file in config) or size > LARGEST:
        held = before.config is None and bool(config)
        return FilesPlan(before.config or (), data, tuple(names), shown, missing, held)
    mounted = tuple(MountedFile(name=file.name, key=_key(file, salt)) for file in config)
    data |= {one.key: file.text for one, file in zip(mounted, config, strict=True)}
    return FilesPlan(mounted, data, tuple(names), shown, missing)


def _key(file: GivenFile, salt: str) -> str:
    """Differs for another content, and shows nothing of it to who does not know the salt."""
    whole = f"{file.name}\n{file.text}".encode()
    return f"{CONFIG}{hmac.new(salt.encode(), whole, 'sha256').hexdigest()[:16]}.xml"
