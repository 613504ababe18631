"""Which pods a person asked to restart, and when restarts may begin. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from blockhouse.config.units import seconds
from blockhouse_operator.api.labels import RESTART
from blockhouse_operator.api.rollout import Window
from blockhouse_operator.api.status import RestartStatus

_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_WEEK = 8
"""Days within which a window of one day a week begins again, by any clock."""


def latest_demands(
    before: RestartStatus | None, pipeline: str, shard: str, pods: Collection[str]
) -> RestartStatus | None:
    """The demands after those of the annotations of a pipeline and its shard. A new one is about `pods`, the UIDs of
    those that are there: no clock decides, for that of the API server may be another one than the operator's.

    An annotation that is gone demands nothing, nor does one that was heard before.
    """
    known = before or RestartStatus()
    asked = known.model_copy(update={"pipeline": pipeline or known.pipeline, "shard": shard or known.shard})
    return before if asked == known else asked.model_copy(update={"pods": tuple(sorted(pods))})


def demanded(pod: Mapping[str, Any], latest: RestartStatus | None) -> bool:
    """Whether a pod's restart was asked for: by its own annotation, or of all replicas while it was there."""
    metadata = pod["metadata"]
    if (metadata.get("annotations") or {}).get(RESTART):
        return True
    return latest is not None and metadata["uid"] in latest.pods


def outside_windows(windows: Sequence[Window], now: datetime) -> str:
    """Empty while a window is open, or where there is none: else when the next one begins, in words."""
    spans = [span for window in windows for span in _spans(window, now)]
    if not windows or any(begin <= now < end for begin, end in spans):
        return ""
    begin = min(begin for begin, _ in spans if begin > now)
    return f"the next window of spec.rollout.windows begins {begin:%a %Y-%m-%d %H:%M %Z}"


def _spans(window: Window, now: datetime) -> Iterator[tuple[datetime, datetime]]:
    """Begin and end of a window around `now`: that of yesterday may still be open."""
    zone = ZoneInfo(window.time_zone)
    today, lasts = now.astimezone(zone).date(), timedelta(seconds=seconds(window.duration))
    hour, minute = map(int, window.start.split(":"))
    for day in (today + timedelta(days=number) for number in range(-1, _WEEK)):
        if not window.days or _DAYS[day.weekday()] in window.days:
            begin = datetime(day.year, day.month, day.day, hour, minute, tzinfo=zone)
            # By UTC: arithmetic within a zone knows nothing of the hour that summer time takes or gives.
            yield begin, begin.astimezone(now.tzinfo) + lasts
