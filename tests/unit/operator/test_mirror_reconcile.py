"""Reconciles of a mirror against a Kubernetes in memory: what is created, what is left alone, what is asked once."""

from __future__ import annotations

import copy
from base64 import b64decode
from pathlib import Path
from typing import Any

import pytest

from blockhouse.errors import Retryable
from blockhouse.tokens import read_only
from blockhouse_operator.api import labels
from blockhouse_operator.handlers.keys import Key, asks_by_annotation, of_child, of_resource
from tests.unit.operator.mirror_world import Operator
from tests.unit.operator.mirrors import kafka_mirror, page, partition


@pytest.fixture
def operator(tmp_path: Path) -> Operator:
    return Operator(tmp_path)


def content(operator: Operator, secret: str) -> dict[str, str]:
    data = operator.world.objects["Secret", secret]["data"]
    return {key: b64decode(value).decode() for key, value in data.items()}


async def running(operator: Operator, *changes: tuple[str, Any]) -> None:
    await operator.reconcile(*changes)
    operator.world.start()
    await operator.again()


async def test_a_mirror_is_created_asked_and_reported(operator: Operator) -> None:
    assert await operator.reconcile() == 10.0
    made = {"ServiceAccount", "ConfigMap", "Secret", "Service", "PodDisruptionBudget", "NetworkPolicy", "Deployment"}
    assert operator.world.kinds() == made
    assert operator.condition("Ready") == ("False", "Progressing")

    operator.world.start()
    assert await operator.again() == 60.0

    assert operator.condition("Ready") == ("True", "AllMirrored")
    assert operator.world.tokens == {"token-1"}, "the Secret is created once"
    assert operator.world.mirror["status"]["partitions"]["held"] == 1
    assert "AllMirrored" in operator.world.events


async def test_one_that_stays_unwell_is_reconciled_later_each_time_until_something_changes(operator: Operator) -> None:
    operator.world.page = None
    await operator.reconcile()
    operator.world.start()
    silent = [await operator.again() for _ in range(5)]
    assert silent == [10.0, 20.0, 40.0, 60.0, 60.0], "the pod that has started was a change"

    operator.world.start(ready=False)
    assert await operator.again() == 10.0
    operator.world.start()
    operator.world.page = page(partition())
    assert await operator.again() == 60.0
    operator.world.page = None
    assert [await operator.again() for _ in range(2)] == [10.0, 20.0], "it was well meanwhile"


async def test_the_token_that_only_reads_has_a_secret_of_its_own(operator: Operator) -> None:
    await running(operator)
    found = {name: content(operator, name) for name in ("east-mirror", "east-mirror-read")}
    assert found == {"east-mirror": {"token": "token-1"}, "east-mirror-read": {"token": read_only("token-1")}}


async def test_where_that_cannot_be_written_the_mirror_runs_and_it_is_reported(operator: Operator) -> None:
    await operator.reconcile()
    metadata = {"name": "east-mirror-read", "namespace": "data"}
    operator.world.put({"apiVersion": "v1", "kind": "Secret", "metadata": metadata})
    await running(operator)
    assert "Deployment" in operator.world.kinds()
    assert operator.condition("Stalled")[0] == "True"


async def test_nothing_is_written_where_nothing_changed(operator: Operator) -> None:
    await running(operator)
    before = copy.deepcopy(operator.world.objects)
    events = list(operator.world.events)

    await operator.again()

    assert operator.world.objects == before
    assert operator.world.events == events


async def test_a_bad_spec_is_a_condition_and_leaves_the_running_mirror_alone(operator: Operator) -> None:
    await running(operator)
    before = copy.deepcopy(operator.world.template)

    await operator.reconcile(("spec.topics.include", ["events-("]))

    assert operator.condition("Stalled") == ("True", "InvalidSpec")
    assert operator.condition("Ready") == ("False", "InvalidSpec")
    assert operator.world.template == before


async def test_a_configuration_that_the_program_would_refuse_is_a_condition(operator: Operator) -> None:
    """Never an exception: it would be reported nowhere, and tried again endlessly."""
    await operator.reconcile(("spec.target.bootstrapServers", "kafka-east-0:9093"))  # a server of the source

    assert operator.condition("Stalled") == ("True", "InvalidSpec")
    assert operator.world.kinds() == set()


async def test_while_a_secret_is_missing_the_running_pod_is_not_replaced(operator: Operator) -> None:
    await running(operator)
    before = copy.deepcopy(operator.world.template)
    login = operator.world.objects.pop(("Secret", "kafka-east-login"))

    await operator.reconcile(("spec.image", "mine:2"))

    assert operator.condition("Stalled") == ("True", "SecretMissing")
    assert operator.condition("Ready") == ("True", "AllMirrored"), "it still mirrors"
    assert operator.world.template == before

    operator.world.put(login)
    await operator.again()
    assert operator.world.template["spec"]["containers"][0]["image"] == "mine:2"
    assert operator.condition("Stalled") == ("", "")


async def test_without_its_secrets_nothing_is_created(operator: Operator) -> None:
    del operator.world.objects["Secret", "kafka-agg-ca"]

    await operator.reconcile()

    assert operator.world.kinds() == {"Secret"}
    assert operator.condition("Ready") == ("False", "SecretMissing")


async def test_another_password_replaces_the_pod(operator: Operator) -> None:
    await running(operator)
    before = copy.deepcopy(operator.world.template)

    operator.world.objects["Secret", "kafka-east-login"]["data"]["password"] = "b3RoZXI="
    await operator.again()

    after = operator.world.template["metadata"]["annotations"]
    assert after[labels.SECRETS] != before["metadata"]["annotations"][labels.SECRETS]
    assert after[labels.SPEC_HASH] == before["metadata"]["annotations"][labels.SPEC_HASH]


async def test_a_suspended_mirror_has_no_pod_even_without_its_secrets(operator: Operator) -> None:
    await running(operator)
    del operator.world.objects["Secret", "kafka-east-login"]

    await operator.reconcile(("spec.suspend", True))

    assert operator.world.objects["Deployment", "east-mirror"]["spec"]["replicas"] == 0
    assert operator.condition("Suspended") == ("True", "Suspended")
    assert operator.world.mirror["status"]["phase"] == "Suspended"


async def test_a_network_policy_that_is_switched_off_goes(operator: Operator) -> None:
    await running(operator)

    await operator.reconcile(("spec.networkPolicy.enabled", False))

    assert "NetworkPolicy" not in operator.world.kinds()


async def test_what_belongs_to_another_is_left_alone(operator: Operator) -> None:
    foreign = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "east-mirror"}, "data": {"token": "eA=="}}
    operator.world.put(foreign)

    await operator.reconcile()

    assert operator.condition("Stalled") == ("True", "NameTaken")
    assert operator.world.kinds() == {"Secret"}
    assert operator.world.objects["Secret", "east-mirror"]["data"] == foreign["data"]


async def test_a_write_that_is_refused_is_reported_and_tried_again(operator: Operator) -> None:
    operator.world.refused = {"Deployment"}

    with pytest.raises(Retryable, match="were refused"):
        await operator.reconcile()

    assert operator.condition("Stalled") == ("True", "Forbidden")
    assert "ConfigMap" in operator.world.kinds(), "one object that is refused stops no other"


ASKED = ("metadata.annotations", {labels.REBALANCE: "now"})


async def test_a_request_for_even_tasks_is_passed_on_once_and_taken_away(operator: Operator) -> None:
    await running(operator)

    await operator.reconcile(ASKED)
    await operator.again()

    assert operator.world.rebalances == 1
    assert operator.world.mirror["metadata"]["annotations"] == {}
    assert "RebalanceRequested" in operator.world.events


async def test_a_request_whose_annotation_cannot_be_taken_away_is_passed_on_once_too(
    operator: Operator,
) -> None:
    await running(operator)
    operator.world.refused = {"annotate"}

    await operator.reconcile(ASKED)
    await operator.again()
    assert operator.world.rebalances == 1

    await operator.reconcile()
    await operator.reconcile(ASKED)
    assert operator.world.rebalances == 2, "the next request is another one"


async def test_a_changed_service_does_not_make_a_mirror_unready(operator: Operator) -> None:
    await running(operator)

    await operator.reconcile(("spec.template.service.metadata.annotations", {"a": "b"}))

    assert operator.condition("Ready") == ("True", "AllMirrored")


async def test_a_request_waits_for_a_driver_that_does_not_answer(operator: Operator) -> None:
    await running(operator)
    operator.world.page = None

    assert await operator.reconcile(ASKED) == 10.0
    assert operator.world.mirror["metadata"]["annotations"] == {labels.REBALANCE: "now"}

    operator.world.page = page(partition())
    await operator.again()
    assert operator.world.rebalances == 1


async def test_a_silent_driver_is_unknown_and_not_replaced(operator: Operator) -> None:
    await running(operator)
    before = copy.deepcopy(operator.world.template)
    operator.world.page = None

    await operator.again()

    assert operator.condition("Ready") == ("Unknown", "MirrorUnreachable")
    assert operator.world.template == before


async def test_the_younger_of_two_mirrors_with_one_group_makes_nothing(operator: Operator) -> None:
    older = kafka_mirror(("metadata.uid", "older"), ("metadata.creationTimestamp", "2025-01-01T00:00:00Z"))
    older["metadata"]["namespace"] = "other"
    operator.world.objects["KafkaMirror", "older"] = older

    await operator.reconcile(("metadata.creationTimestamp", "2026-01-01T00:00:00Z"))

    assert operator.condition("Stalled") == ("True", "ClaimConflict")
    assert operator.world.kinds() == set()


async def test_what_another_release_runs_is_reported_once_and_left_alone(operator: Operator) -> None:
    operator.scope.other = "every KafkaMirror of namespace data is served by the operators of x"

    await operator.reconcile()
    await operator.again()

    assert operator.world.events == ["OtherOperator"]
    assert operator.world.kinds() == set()
    assert operator.world.mirror["status"] == {}


async def test_nothing_is_left_to_do_for_one_that_is_gone(operator: Operator) -> None:
    assert await operator.again() is None
    assert await operator.reconcile(("metadata.deletionTimestamp", "2026-01-01T00:00:00Z")) is None
    assert operator.world.kinds() == set()


def test_events_lead_to_the_mirror() -> None:
    key = Key("mirror", "data", "east")
    live = kafka_mirror()
    child = {"metadata": {"name": "east-mirror", "namespace": "data", "labels": labels.of_mirror("east")}}

    assert of_resource(live) == of_child(child) == key
    assert of_child({"metadata": {"name": "x", "namespace": "data", "labels": labels.of_pipeline("x")}}) != key
    assert not asks_by_annotation(live)
    assert asks_by_annotation(kafka_mirror(ASKED))
