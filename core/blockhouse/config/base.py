"""What all settings share: camelCase in YAML, snake_case in Python, immutable, and no unknown fields.

A setting is declared once, with its type, bounds, default and docstring. The reference pages in `docs/`, the errors and
the custom resource (`blockhouse_operator.api.declared`) follow from that. Durations and sizes have both bounds, because
the API server is to refuse what the aggregator would refuse.
"""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel


class Settings(BaseModel):
    """A section of a configuration file."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", alias_generator=to_camel, populate_by_name=True, use_attribute_docstrings=True
    )


class SettingsWithFiles(Settings):
    """Settings whose every path is a file that must be readable as long as a process runs."""
