"""Which alerts fired in a run and when, from series as Prometheus returns them; and what a run fails for."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from e2e.chaos.alerting import GROUPS, AlertReport, Firing, firings, shipped
from e2e.chaos.injecting import Injected
from e2e.chaos.scenario import Fault, Kind, Scenario
from e2e.chaos.verdict import judge_alerts
from e2e.stack.prometheus import Series

ZERO, UNTIL = 1000.0, 1100.4
"""Unix times of the run's beginning, and of the question."""
SCENARIO = Path(__file__).parents[3] / "e2e/chaos/scenarios/alerts.yaml"
FAULTS = [Injected(Fault(at=10, kind=Kind.KILL, target="aggregator-r1"), 10, 15)]
LAG, UNFIT = Firing("LagGrows", 40, 60, ("partition=0",)), Firing("ReplicaUnfit", 30, 50, ("instance=x",))


def series(alert: str, first: int, last: int, **labels: str) -> Series:
    """There each second of the run from `first` to `last`."""
    names = {"__name__": "ALERTS", "alertname": alert, "alertstate": "firing", "severity": "warning", "job": "j"}
    times = tuple(ZERO + at for at in range(first, last + 1))
    return Series({**names, **labels}, times, (1.0,) * len(times))


def test_an_alert_fires_from_its_first_series_to_its_last() -> None:
    found = firings([series("A", 10, 20, partition="0"), series("A", 15, 30, partition="1")], ZERO, UNTIL)
    assert found == (Firing("A", 10, 31, ("partition=0", "partition=1")),)


def test_an_alert_that_was_resolved_and_fires_again_has_fired_twice() -> None:
    found = firings(
        [series("A", 10, 20, stream="x"), series("A", 40, 50, stream="y"), series("B", 12, 13)], ZERO, UNTIL
    )
    assert [(f.alert, f.began, f.ended, f.about) for f in found] == [
        ("A", 10, 21, ("stream=x",)),
        ("B", 12, 14, ("",)),
        ("A", 40, 51, ("stream=y",)),
    ]


def test_an_alert_that_is_there_at_the_end_was_not_resolved() -> None:
    fires, resolved = firings([series("A", 10, 100), series("B", 20, 99)], ZERO, UNTIL)
    assert (fires.ended, resolved.ended) == (None, 100)


def test_nothing_fires_without_a_series() -> None:
    assert firings([], ZERO, UNTIL) == ()


@pytest.mark.parametrize(
    ("demanded", "fired", "failed"),
    [
        (["LagGrows"], [LAG], []),
        (["LagGrows"], [LAG, UNFIT], []),
        ([], [LAG], []),
        ([], [], []),
        (["LagGrows", "ReplicaUnfit"], [LAG], ["every alert that had to fire"]),
        (["LagGrows"], [], ["every alert that had to fire"]),
        (["LagGrows"], [Firing("LagGrows", 40, None, ())], ["no alert fired without a fault"]),
        (["LagGrows"], [LAG, Firing("LagGrows", 80, None, ())], ["no alert fired without a fault"]),
        ([], [Firing("LagGrows", -4, 60, ())], ["no alert fired without a fault"]),
        ([], [Firing("LagGrows", 9, 60, ())], ["no alert fired without a fault"]),
    ],
)
def test_a_run_fails_for_an_alert_that_is_missing_early_or_never_resolved(
    demanded: list[str], fired: list[Firing], failed: list[str]
) -> None:
    unmet = [check.demand for check in judge_alerts(demanded, AlertReport(tuple(fired)), FAULTS) if not check.holds]
    assert len(unmet) == len(failed)
    assert all(demand.startswith(begin) for demand, begin in zip(unmet, failed, strict=True))


@pytest.mark.parametrize("demanded", [[], ["LagGrows"]])
def test_a_run_whose_programs_are_not_scraped_fails_however_quiet_it_is(demanded: list[str]) -> None:
    report = AlertReport((LAG,), unscraped=("127.0.0.1:8080",))
    (unmet,) = [check for check in judge_alerts(demanded, report, FAULTS) if not check.holds]
    assert unmet.demand.startswith("Prometheus scrapes every")
    assert unmet.found == "127.0.0.1:8080"


def test_the_scenario_names_at_least_three_alerts_and_each_is_shipped() -> None:
    scenario = Scenario.model_validate(yaml.safe_load(SCENARIO.read_text()))
    assert len(set(scenario.alerts)) >= 3
    groups = shipped()
    assert {group["name"] for group in groups} == GROUPS
    assert set(scenario.alerts) <= {rule["alert"] for group in groups for rule in group["rules"]}
