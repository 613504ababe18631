"""How changes reach the pods: how many at a time, when, and whether at all."""

from __future__ import annotations

from typing import Annotated, Literal, Self
from zoneinfo import ZoneInfo

from pydantic import BeforeValidator, Field, model_validator

from blockhouse_operator.api.base import Between, Duration, IntOrString, Part, Rule, text
from blockhouse_operator.api.parts import MAX_SHARDS

Day = Literal["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"]

Parallel = Annotated[
    str,
    BeforeValidator(text),
    IntOrString(),
    Field(pattern=r"^([1-9][0-9]{0,3}|([1-9][0-9]?|100)%)$", max_length=4),
    Rule(
        f"type(self) == string || (int(self) >= 1 && int(self) <= {MAX_SHARDS})",
        f"expected from 1 to {MAX_SHARDS}, or a percentage of the shards, such as 10%",
    ),
]
"""A number of shards, or a percentage of them."""


class Window(Part):
    """A time at which restarts may begin, again and again."""

    days: Annotated[tuple[Day, ...], Field(max_length=7)] = ()
    """Days on which it begins; every day if none is given."""
    start: Annotated[str, Field(pattern=r"^([01][0-9]|2[0-3]):[0-5][0-9]$", max_length=5)]
    """When it begins: `02:00`."""
    duration: Annotated[Duration, Between("10m", "24h")]
    """How long it lasts; a restart that began in it is finished."""
    time_zone: Annotated[str, Field(max_length=64)] = "UTC"
    """Zone of `start`, by its name in the IANA database: `Europe/Berlin`."""

    @model_validator(mode="after")
    def _known_zone(self) -> Self:
        try:
            ZoneInfo(self.time_zone)
        except (KeyError, ValueError, OSError) as error:
            raise ValueError(f"timeZone: {self.time_zone} is no time zone of the IANA database") from error
        return self


class RolloutSettings(Part):
    """What a pipeline and each of its shards have."""

    strategy: Literal["RollingRestart", "Reload"] = "RollingRestart"
    """After columns were added: restart the aggregators too, one of a shard at a time (never ClickHouse), or only let
    them take the new revision in place."""
    windows: Annotated[tuple[Window, ...], Field(max_length=16)] = ()
    """When restarts may begin, and changes of tables that need them; at any time if none is given. A replica whose
    ClickHouse is down, and what `blockhouse.dev/restart` asks for, does not wait for one."""
    paused: bool = False
    """Begin nothing that restarts anything or alters a table; continue where it stopped when set to false. A table that
    is held already gets its columns."""
    abort: bool = False
    """Abandon changes of tables: paused tables are released at their old revision, unless they are altered already, and
    neither are tables changed nor aggregators restarted until it is false again."""
    step_timeout: Annotated[Duration, Between("1s", "24h")] = "15m"
    """How long one step may take before the rollout stops with a condition."""


class Rollout(RolloutSettings):
    """How changes reach the pods."""

    max_parallel_shards: Parallel = "1"
    """Shards restarted at the same time, a number or a percentage, rounded down and at least 1; within a shard it is
    always one replica at a time."""
    on_secret_change: Literal["Reload", "Restart"] = "Reload"
    """When a Secret that pods read has another content, or the ConfigMap of `settingsFrom`: let processes read again
    what they can, or replace the pods."""


class ShardRollout(RolloutSettings):
    """How changes reach the pods of the shard."""

    max_parallel_shards: Annotated[int, Field(ge=1, le=MAX_SHARDS)] = 1
    """Shards of the pipeline restarted at the same time; within a shard it is always one replica at a time."""
    restart: Annotated[str, Field(max_length=256)] = ""
    """The demand to restart every replica, from the pipeline's annotation: another text than before is a new one."""


def parallel_shards(text: str, shards: int) -> int:
    """How many of `shards` may be restarted at the same time, by `maxParallelShards`."""
    if text.endswith("%"):
        return max(1, shards * int(text[:-1]) // 100)
    return min(int(text), MAX_SHARDS)
