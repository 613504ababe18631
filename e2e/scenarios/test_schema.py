"""Columns added by `kubectl apply`: held, altered, released, aggregators restarted one by one; judged by what the API
server was sent. Refused changes leave everything as it is. Aggregators are played (`e2e/simulator`)."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable
from typing import Any

import pytest

from blockhouse_operator.decide.rollout import RESTART
from blockhouse_operator.decide.tables import CHANGE
from e2e.scenarios.resources import Manifest, at_home, example, patched
from e2e.scenarios.site import SYSTEM, Site
from e2e.scenarios.state import pods

pytestmark = pytest.mark.own_cluster("its pods are played by nodes of KWOK's")

TABLE, REPLICAS = "db.clicks", 2
COLUMNS = "url String, seven UInt32 DEFAULT 7, loud String DEFAULT upper(url),"
CHANGE_EVENTS = ("HoldingTable", "AlteringTable", "ReleasingTable")
"""What the steps of `decide.tables.CHANGE` are called in Events; the restarts of `RESTART` are called Restarting."""


def pipeline(site: Site, name: str, namespace: str) -> Manifest:
    return at_home(example("one-datacenter"), site.surroundings, name=name, namespace=namespace)


def declaring(manifest: Manifest, change: Callable[[str], str], **more: Any) -> Manifest:
    """The pipeline with its table's DDL changed."""
    changed = copy.deepcopy(manifest)
    table = changed["spec"]["tables"][0]
    table["ddl"] = change(table["ddl"])
    return patched(changed, **more)


def wider(ddl: str) -> str:
    return ddl.replace("url String,", COLUMNS)


def table_status(site: Site, name: str, namespace: str) -> dict[str, Any]:
    found = site.cluster.get("csi", f"{name}-0", "-n", namespace).get("status", {})
    tables: list[dict[str, Any]] = found.get("tables", [])
    return next((table for table in tables if table["name"] == TABLE), {})


def events(site: Site, name: str, namespace: str) -> list[tuple[str, str]]:
    """Reasons and messages of the shard's Events, by when they happened first, each as often as it did.

    Others, in another form of an Event, are about the Service of that name: the API server's on its address.
    """
    found = site.cluster.get("events", "-n", namespace)["items"]
    shard = ("ClickHouseShardIngest", f"{name}-0")
    ours = [event for event in found if (event["involvedObject"]["kind"], event["involvedObject"]["name"]) == shard]
    ours.sort(key=lambda e: (e["metadata"]["creationTimestamp"], int(e["metadata"]["resourceVersion"])))
    return [(event["reason"], event["message"]) for event in ours for _ in range(event["count"])]


def reasons(site: Site, name: str, namespace: str) -> list[str]:
    """Reasons of the Events about a change of tables, oldest first."""
    return [r for r, _ in events(site, name, namespace) if r in (*CHANGE_EVENTS, "Restarting")]


def uids(site: Site, name: str, namespace: str) -> set[str]:
    return {pod["metadata"]["uid"] for pod in pods(site.cluster, name, namespace)}


def create(site: Site, manifest: Manifest, name: str, namespace: str) -> None:
    site.apply(manifest)
    site.wait_settled(name, namespace)
    site.wait_condition(name, namespace, "SchemaUpToDate", "True")


def test_columns_are_added_by_an_apply_with_progress_in_conditions_and_events(site: Site, namespace: str) -> None:
    name = "schema"
    manifest = pipeline(site, name, namespace)
    with site.operator():
        create(site, manifest, name, namespace)
        before = uids(site, name, namespace)
        site.apply(declaring(manifest, wider))
        site.wait_condition(name, namespace, "SchemaUpToDate", "False", "SchemaChanging")
        found = site.wait_condition(name, namespace, "SchemaUpToDate", "True")
        site.wait_settled(name, namespace)
        expected = [*CHANGE_EVENTS, *["Restarting"] * REPLICAS]
        site.wait("an Event for each step", lambda: reasons(site, name, namespace) == expected)
    assert found["observedGeneration"] == 2
    assert table_status(site, name, namespace) == {
        "name": TABLE,
        "revision": 2,
        "state": "AsSpecified",
        "message": "",
        "heldSince": "",
    }
    seen = [message for reason, message in events(site, name, namespace) if reason == "SchemaChanging"]
    assert any("SchemaUpToDate is False" in message and "seven, loud" in message for message in seen), seen
    assert uids(site, name, namespace) == before, "no pod is replaced for a column"


def test_a_bad_change_leaves_the_old_revision_serving_and_is_reported(site: Site, namespace: str) -> None:
    name = "refused"
    manifest = pipeline(site, name, namespace)
    bad = {
        "column url is on the server and not in the DDL": lambda ddl: ddl.replace("url String,", ""),
        "column url is String on the server and UInt8 in the DDL": lambda ddl: ddl.replace("url String", "url UInt8"),
        "cannot be read": lambda ddl: ddl.replace("url String", "url String("),
    }
    with site.operator():
        create(site, manifest, name, namespace)
        for reason, change in bad.items():
            site.apply(declaring(manifest, change))
            site.wait(
                f"SchemaMismatch: {reason}",
                lambda: reason in site.condition("ba", name, namespace, "SchemaUpToDate").get("message", ""),  # noqa: B023
                timeout=300,
            )
            found = site.condition("ba", name, namespace, "SchemaUpToDate")
            assert (found["status"], found["reason"]) == ("False", "SchemaMismatch")
            assert table_status(site, name, namespace)["revision"] == 1
            site.wait_ready(name, namespace)
        assert reasons(site, name, namespace) == []
        site.apply(manifest)
        site.wait_condition(name, namespace, "SchemaUpToDate", "True")


@pytest.mark.long
def test_an_operator_killed_after_every_step_is_followed_by_one_that_continues(site: Site, namespace: str) -> None:
    name = "steps"
    manifest = pipeline(site, name, namespace)
    with site.operator():
        create(site, manifest, name, namespace)
    site.apply(declaring(manifest, wider))
    expected = [*CHANGE_EVENTS, *["Restarting"] * REPLICAS]
    assert len(expected) == len(CHANGE) + REPLICAS * len([step for step in RESTART if "Restart" in step.__name__])

    def over() -> bool:
        found = site.condition("ba", name, namespace, "SchemaUpToDate")
        done = (found.get("status"), found.get("observedGeneration")) == ("True", 2)
        return done and table_status(site, name, namespace).get("revision") == 2

    for number, step in enumerate(expected, start=1):
        operator = site.start_operator()
        try:
            # One that dies between a step and its Event takes that along: then there are fewer Events than steps.
            site.wait(
                f"step {number}, {step}",
                lambda: len(reasons(site, name, namespace)) >= number or over(),  # noqa: B023
                timeout=300,
            )
        finally:
            operator.kill()
            # It is dead for certain: the next leader need not wait until its lease has expired.
            site.cluster.kubectl("delete", "lease", "blockhouse-operator", "-n", SYSTEM, "--ignore-not-found")
    with site.operator():
        site.wait("the change is complete", over, timeout=300)
        site.wait_settled(name, namespace)
    found = table_status(site, name, namespace)
    assert (found["revision"], found["state"], found["heldSince"]) == (2, "AsSpecified", "")
    seen = [reason for reason, _ in itertools.groupby(reasons(site, name, namespace))]
    steps = [*CHANGE_EVENTS, "Restarting"]
    assert seen == [step for step in steps if step in seen], "in the order of the steps, whichever operator took them"
    assert len(seen) >= len(steps) - 1, "of these steps one Event may be lost, at its operator's death"


def test_a_change_is_held_back_by_pause_and_abandoned_by_abort(site: Site, namespace: str) -> None:
    name = "paused"
    manifest = pipeline(site, name, namespace)
    with site.operator():
        create(site, manifest, name, namespace)
        for stop, reason in (("paused", "Paused"), ("abort", "Aborted")):
            site.apply(declaring(manifest, wider, rollout={stop: True}))
            site.wait_condition(name, namespace, "SchemaUpToDate", "False", reason)
            assert reasons(site, name, namespace) == []
        site.apply(declaring(manifest, wider, rollout={"strategy": "Reload"}))
        site.wait_condition(name, namespace, "SchemaUpToDate", "True")
    assert reasons(site, name, namespace) == [*CHANGE_EVENTS]
