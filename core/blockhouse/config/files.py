"""Files that a configuration refers to and a process reads again and again: secrets, certificates and their keys.

Clients that are connected hold what they have read, so a file that is gone shows only when the next one connects, hours
later and in whatever place that happens to be. Checked by itself, it shows at once and by its name.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from pydantic import BaseModel

from blockhouse.config.base import SettingsWithFiles


def files_of(settings: BaseModel) -> Iterator[Path]:
    """Every file of a secret or of TLS in the settings, in their order; one that is named twice comes twice."""
    for name in type(settings).model_fields:
        value = getattr(settings, name)
        if isinstance(settings, SettingsWithFiles) and isinstance(value, Path):
            yield value
        for inner in value if isinstance(value, tuple) else (value,):
            if isinstance(inner, BaseModel):
                yield from files_of(inner)


def unreadable(settings: BaseModel) -> str:
    """The first of its files that this process cannot read, and why, for people; empty when all can be read."""
    for path in files_of(settings):
        try:
            path.read_bytes()
        except OSError as error:
            return f"file {path} of the configuration cannot be read: {error.strerror}; put it back"
    return ""
