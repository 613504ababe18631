"""The rates that kafka-kit's autothrottle sets for the same input, so that anybody can hold ours against it.

It reproduces that tool with its defects and is used for nothing but `blockhouse topics throttle replay` and tests:
no rate that reaches a cluster comes from here, except with the setting `formula: kafka-kit`, which takes `rate_mb`.
Rates and capacities are MB/s, 1 MB = 10^6 bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

ROLES = ("leader", "follower")
Rates = dict[str, float | None]
"""Rate by role; None for a role that the broker does not have."""


@dataclass(frozen=True, slots=True)
class KitSettings:
    """Its options: MB/s, percent, intervals."""

    min_rate: float
    max_tx_pct: float
    max_rx_pct: float
    change_threshold_pct: float
    failure_threshold: int
    cleanup_after: int
    capacities: Mapping[str, float]

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> KitSettings:
        """From the object `config` of a case. Raises KeyError for what is missing."""
        return cls(
            config["min_rate"],
            config["max_tx_pct"],
            config["max_rx_pct"],
            config["change_threshold_pct"],
            config["failure_threshold"],
            config["cleanup_after"],
            dict(config["capacities"]),
        )

    def percent(self, role: str) -> float:
        return self.max_tx_pct if role == "leader" else self.max_rx_pct


def rate_mb(net: float, known: float, capacity: float, percent: float, min_rate: float) -> float:
    """The rate of one broker in one role: what clients and overload leave of its capacity, times `percent`.

    `known` is the rate set last: replication is assumed to use all of it.
    """
    other = max(net - known, 0.0)
    over = max(net - capacity, 0.0)
    return max((capacity - other - over) * (percent / 100), min_rate)


def headroom(case: Mapping[str, Any]) -> dict[str, Any]:
    """One broker, one role: the answer to a case of kind `headroom`."""
    settings = KitSettings.of(case["config"])
    capacity = settings.capacities.get(case["type"])
    if capacity is None:
        return {"error": "unknown instance type", "rate_mb": settings.min_rate}
    percent = settings.percent(case["role"])
    return {"rate_mb": rate_mb(case["net"], case["prev"], capacity, percent, settings.min_rate)}


def sequence(case: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Consecutive intervals: the answers to a case of kind `sequence`."""
    loop = _Loop(KitSettings.of(case["config"]))
    return [loop.interval(interval) for interval in case["intervals"]]


@dataclass
class _Roles:
    """Who takes part in an interval, and the lists it asks for."""

    sources: set[int] = field(default_factory=set)
    destinations: set[int] = field(default_factory=set)
    lists: dict[str, dict[str, set[str]]] = field(default_factory=dict)

    @classmethod
    def of(cls, moving: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> _Roles:
        roles = cls()
        for topic, partitions in moving.items():
            lists = roles.lists.setdefault(topic, {"leaders": set(), "followers": set()})
            for number, partition in partitions.items():
                if partition["leader"] != -1:
                    roles.sources.add(partition["leader"])
                    lists["leaders"].add(f"{number}:{partition['leader']}")
                arriving = [broker for broker in partition["target"] if broker not in partition["isr"]]
                roles.destinations.update(arriving)
                lists["followers"].update(f"{number}:{broker}" for broker in arriving)
        return roles

    @property
    def participants(self) -> list[int]:
        return sorted(self.sources | self.destinations)

    def has(self, broker: int, role: str) -> bool:
        return broker in (self.sources if role == "leader" else self.destinations)


class _Loop:
    """What the tool remembers from interval to interval."""

    def __init__(self, settings: KitSettings) -> None:
        self._settings = settings
        self._known: dict[int, dict[str, float]] = {}
        self._topics: set[str] = set()
        self._failures = 0
        self._override: Mapping[str, Any] = {"rate": 0, "autoremove": False}
        self._override_removed = False
        self._believed_set = True
        self._since_clean_up = 0

    def interval(self, seen: Mapping[str, Any]) -> dict[str, Any]:
        roles = _Roles.of(seen["moving"])
        if not set(seen["moving"]) <= self._topics:
            self._known.clear()
        self._topics = set(seen["moving"])
        if not self._override_removed:  # a case holds what was asked for at first; nothing asks a second time
            self._override = seen["override"]
        overrides = {int(id): given["rate"] for id, given in seen["broker_overrides"].items()}
        written: dict[int, dict[str, int]] = {}
        if seen["moving"]:
            for broker, rates in self._reassignment(seen, roles, overrides):
                self._write(broker, rates, written)
        elsewhere = {id: rate for id, rate in overrides.items() if rate and id not in roles.participants}
        for broker, rate in sorted(elsewhere.items()):
            self._write(broker, dict.fromkeys(ROLES, float(rate)), written)
        self._clean_up(bool(seen["moving"]), bool(elsewhere))
        return {
            "sources": sorted(roles.sources),
            "destinations": sorted(roles.destinations),
            "throttled_replicas": {
                topic: {kind: sorted(entries) for kind, entries in sorted(lists.items())}
                for topic, lists in sorted(roles.lists.items())
            },
            "set": {
                str(id): {f"{role}_bytes": done.get(role, 0) for role in ROLES} for id, done in sorted(written.items())
            },
            "failures": self._failures,
        }

    def _reassignment(
        self, seen: Mapping[str, Any], roles: _Roles, overrides: Mapping[int, float]
    ) -> Iterator[tuple[int, Rates]]:
        """Rates of the brokers that take part; without metrics only those that are overridden."""
        rates = self._automatic(seen, roles)
        for broker in roles.participants:
            override = overrides.get(broker, 0)
            if override:
                yield broker, dict.fromkeys(ROLES, float(override))
            elif broker in rates:
                yield broker, rates[broker]

    def _automatic(self, seen: Mapping[str, Any], roles: _Roles) -> dict[int, Rates]:
        """Rates without the brokers' overrides: none while failures are tolerated, and in an abandoned interval."""
        settings, everyone = self._settings, roles.participants
        if self._override["rate"]:
            self._failures = 0
            return {id: dict.fromkeys(ROLES, float(self._override["rate"])) for id in everyone}
        metrics = {int(id): found for id, found in seen["metrics"].items()}
        missing = [id for id in everyone if id not in metrics]
        if seen["metrics_error"] and missing:
            self._failures += 1
            if self._failures <= settings.failure_threshold:
                return {}
            return {id: dict.fromkeys(ROLES, float(settings.min_rate)) for id in everyone}
        self._failures = 0
        if missing or any(metrics[id]["type"] not in settings.capacities for id in everyone):
            return {}
        return {id: self._rates(id, metrics[id], roles) for id in everyone}

    def _clean_up(self, moving: bool, elsewhere: bool) -> None:
        """Once nothing moves every throttle is removed, and with them an override that asked for it."""
        self._since_clean_up += 1
        if moving:
            self._believed_set = True
        elif not elsewhere and (self._believed_set or self._since_clean_up >= self._settings.cleanup_after):
            self._believed_set, self._since_clean_up = False, 0
            if self._override["autoremove"]:
                self._override, self._override_removed = {"rate": 0, "autoremove": False}, True

    def _rates(self, broker: int, metrics: Mapping[str, Any], roles: _Roles) -> Rates:
        settings, known = self._settings, self._known.get(broker, {})
        return {
            role: rate_mb(
                metrics["tx" if role == "leader" else "rx"],
                known.get(role, 0.0),
                settings.capacities[metrics["type"]],
                settings.percent(role),
                settings.min_rate,
            )
            if roles.has(broker, role)
            else None
            for role in ROLES
        }

    def _write(self, broker: int, rates: Rates, written: dict[int, dict[str, int]]) -> None:
        known = self._known.setdefault(broker, {})
        for role, rate in rates.items():
            if rate is None:
                continue
            before = known.get(role, 0.0)
            if before and abs(before - rate) / before * 100 < self._settings.change_threshold_pct:
                continue
            known[role] = rate
            written.setdefault(broker, {})[role] = round(rate * 1_000_000)
