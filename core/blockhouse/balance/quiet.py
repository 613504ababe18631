"""Quiet hours: the times of day at which moving partitions hurts least. Pure; the moment is handed in."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, time
from zoneinfo import ZoneInfo

_HOURS = re.compile(r"^(\d{2}):(\d{2})-(\d{2}):(\d{2})(?: (\S+))?$")


@dataclass(frozen=True, slots=True)
class QuietHours:
    """From `begin` up to `end` in `zone`, every day; over midnight where the end is the earlier of the two."""

    begin: time
    end: time
    zone: ZoneInfo

    @classmethod
    def parse(cls, text: str) -> QuietHours:
        """`02:00-05:00 UTC`, or any IANA zone; UTC without one. Raises ValueError that names what is wrong."""
        match = _HOURS.match(text.strip())
        if not match:
            raise ValueError(f"{text!r} is not like '02:00-05:00 UTC'")
        try:
            begin, end = (time(int(match[n]), int(match[n + 1])) for n in (1, 3))
            zone = ZoneInfo(match[5] or "UTC")
        except (ValueError, KeyError, OSError) as error:
            raise ValueError(f"{text!r}: {error}") from None
        if begin == end:
            raise ValueError(f"{text!r} is no time at all; for the whole day write 00:00-23:59 and 23:59-00:00")
        return cls(begin, end, zone)

    def contain(self, moment: datetime) -> bool:
        """`moment` must know its zone."""
        now = moment.astimezone(self.zone).time()
        if self.begin < self.end:
            return self.begin <= now < self.end
        return now >= self.begin or now < self.end


def is_quiet(hours: Iterable[QuietHours], moment: datetime) -> bool:
    """Whether `moment`, in the time zone of its own, is within any of `hours`."""
    return any(some.contain(moment) for some in hours)
