"""Where the operator looks for aggregators and verifiers, inside and outside of the cluster's network."""

from __future__ import annotations

import pytest

from blockhouse_operator.adapters.endpoints import AGGREGATOR_URL, MIRROR_URL, VERIFIER_URL, Endpoints


def test_inside_the_cluster_it_is_the_service_of_each() -> None:
    endpoints = Endpoints.from_environment({})
    assert endpoints.aggregator("events-0-dc-a-1", "data") == "http://events-0-dc-a-1.data.svc:8080"
    assert endpoints.verifier("events", "data") == "http://events-verifier.data.svc:8080"
    assert endpoints.mirror("east", "data") == "http://east-mirror.data.svc:8080"


def test_outside_a_template_leads_to_each() -> None:
    endpoints = Endpoints.from_environment(
        {AGGREGATOR_URL: "http://127.0.0.1:9/{namespace}/{replica}/", VERIFIER_URL: "http://gate/{verifier}"}
        | {MIRROR_URL: "http://gate/{namespace}/{mirror}"}
    )
    assert endpoints.aggregator("events-0-dc-a-1", "data") == "http://127.0.0.1:9/data/events-0-dc-a-1"
    assert endpoints.verifier("events", "data") == "http://gate/events-verifier"
    assert endpoints.mirror("east", "data") == "http://gate/data/east-mirror"


@pytest.mark.parametrize("templates", [("http://127.0.0.1:9", None), (None, "http://gate/{replica}")])
def test_one_url_for_all_is_refused(templates: tuple[str | None, str | None]) -> None:
    with pytest.raises(ValueError, match="must contain"):
        Endpoints(*templates)
