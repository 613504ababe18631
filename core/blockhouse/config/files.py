"""Files that a configuration refers to and a process reads again and again: secrets, certificates and their keys.

Clients that are connected hold what they have read, so a file that is gone shows only when the next one connects, hours
later and in whatever place that happens to be. Checked by itself, it shows at once and by its name.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from pydantic import BaseModel

from blockhouse.config.base import SettingsWithFiles
from blockhouse.config.secrets import SecretRef


def files_of(settings: BaseModel) -> Iterator[Path]:
    """Every file of a secret or of TLS in the settings, in their order; one that is named twice comes twice."""
    for part in _parts(settings):
        if isinstance(part, SettingsWithFiles):
            values = (getattr(part, name) for name in type(part).model_fields)
            yield from (value for value in values if isinstance(value, Path))


def unreadable(settings: BaseModel) -> str:
    """The first of its files that this process cannot read, and why, for people; empty when all can be read."""
    return next(_unreadable(settings), "")


def absent(settings: BaseModel) -> list[str]:
    """Each environment variable that the settings name and this process does not have, and each file it cannot read,
    with why, for people: a process that uses the settings here would fail for want of it, sooner or later."""
    names = (part.env for part in _parts(settings) if isinstance(part, SecretRef) and part.env is not None)
    unset = [f"environment variable {name} is not set" for name in dict.fromkeys(names) if name not in os.environ]
    return [*unset, *dict.fromkeys(_unreadable(settings))]


def _unreadable(settings: BaseModel) -> Iterator[str]:
    for path in files_of(settings):
        try:
            path.read_bytes()
        except OSError as error:
            yield f"file {path} of the configuration cannot be read: {error.strerror}; put it back"


def _parts(settings: BaseModel) -> Iterator[BaseModel]:
    """The settings and all settings in them, in their order."""
    yield settings
    for name in type(settings).model_fields:
        value = getattr(settings, name)
        for inner in value if isinstance(value, tuple) else (value,):
            if isinstance(inner, BaseModel):
                yield from _parts(inner)
