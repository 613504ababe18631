"""What an apply would change."""

from __future__ import annotations

from typing import Any

import pytest

from blockhouse_operator.adapters.drift import drifted

DESIRED: dict[str, Any] = {
    "apiVersion": "apps/v1",
    "kind": "StatefulSet",
    "metadata": {"name": "a", "labels": {"app": "x"}},
    "spec": {
        "replicas": 1,
        "template": {
            "spec": {
                "containers": [
                    {"name": "c", "image": "i", "resources": {"limits": {"memory": "1Gi", "cpu": "1000m"}}, "args": []},
                    {"name": "d", "image": "j", "command": ["run", "fast"]},
                ],
                "volumes": [{"name": "tmp", "emptyDir": {}}],
            }
        },
    },
}


def live(**spec: Any) -> dict[str, Any]:
    """The same as the server gives it: defaults filled in, quantities rewritten, order of items its own."""
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": "a", "uid": "1", "labels": {"app": "x", "other": "y"}},
        "spec": {
            "replicas": 1,
            "podManagementPolicy": "OrderedReady",
            "template": {
                "spec": {
                    "containers": [
                        {"name": "side", "image": "injected"},
                        {"name": "d", "image": "j", "command": ["run", "fast"], "imagePullPolicy": "Always"},
                        {
                            "name": "c",
                            "image": "i",
                            "resources": {"limits": {"memory": "1024Mi", "cpu": "1"}},
                            "terminationMessagePath": "/dev/x",
                        },
                    ],
                    "volumes": [{"name": "tmp", "emptyDir": {}}],
                }
            },
        }
        | spec,
        "status": {"replicas": 1},
    }


def owned(fields: dict[str, Any], manager: str = "me", operation: str = "Apply") -> dict[str, Any]:
    found = live()
    found["metadata"]["managedFields"] = [{"manager": manager, "operation": operation, "fieldsV1": fields}]
    return found


def test_defaults_quantities_and_what_others_added_are_no_drift() -> None:
    assert drifted(DESIRED, live(), "me") == ()


def test_a_changed_and_a_missing_field_are_named() -> None:
    assert drifted(DESIRED, live(replicas=0), "me") == (".spec.replicas",)
    found = live()
    del found["metadata"]["labels"]["app"]
    assert drifted(DESIRED, found, "me") == (".metadata.labels.app",)


def test_a_changed_container_is_found_by_name_wherever_it_stands() -> None:
    found = live()
    found["spec"]["template"]["spec"]["containers"][2]["image"] = "other"
    assert drifted(DESIRED, found, "me") == (".spec.template.spec.containers[name=c].image",)


def test_a_plain_list_must_be_equal() -> None:
    found = live()
    found["spec"]["template"]["spec"]["containers"][1]["command"] = ["run", "fast", "-x"]
    assert drifted(DESIRED, found, "me") == (".spec.template.spec.containers[name=d].command",)


def test_a_field_that_we_owned_and_do_not_want_any_more_is_drift() -> None:
    fields = {"f:spec": {"f:replicas": {}, "f:podManagementPolicy": {}}}
    assert drifted(DESIRED, owned(fields), "me") == (".spec.podManagementPolicy",)


def test_a_container_that_we_owned_and_do_not_want_any_more_is_drift() -> None:
    containers = {'k:{"name":"c"}': {".": {}, "f:image": {}}, 'k:{"name":"side"}': {".": {}, "f:image": {}}}
    fields = {"f:spec": {"f:template": {"f:spec": {"f:containers": containers}}}}
    assert drifted(DESIRED, owned(fields), "me") == ('.spec.template.spec.containers[{"name":"side"}]',)


@pytest.mark.parametrize(("manager", "operation"), [("someone", "Apply"), ("me", "Update")])
def test_fields_of_others_are_none_of_our_business(manager: str, operation: str) -> None:
    fields = {"f:spec": {"f:podManagementPolicy": {}}}
    assert drifted(DESIRED, owned(fields, manager, operation), "me") == ()


def test_an_environment_value_is_text_and_no_quantity() -> None:
    desired = {"env": [{"name": "X", "value": "1000m"}]}
    assert drifted(desired, {"env": [{"name": "X", "value": "1"}]}, "me") == (".env[name=X].value",)


@pytest.mark.parametrize("value", [False, 0])
def test_a_value_that_was_removed_is_missed_even_if_it_is_false(value: object) -> None:
    """A ServiceAccount's `automountServiceAccountToken: false`: without it, pods get a token."""
    assert drifted({"metadata": {}, "automount": value}, {"metadata": {}}, "us") == (".automount",)


@pytest.mark.parametrize("value", ["", [], {}])
def test_an_empty_value_may_not_be_stored(value: object) -> None:
    assert drifted({"metadata": {}, "labels": value}, {"metadata": {}}, "us") == ()
