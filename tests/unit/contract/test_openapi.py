"""The OpenAPI document: complete, and true of what the servers answer."""

from __future__ import annotations

from typing import Any

import pytest
from aiohttp import web
from prometheus_client import CollectorRegistry

from blockhouse.config.pipeline import Admin
from blockhouse.contract import openapi
from blockhouse.fleet.throttle_http import ThrottleServer
from blockhouse_aggregator.admin.server import AdminServer
from blockhouse_aggregator.faults.armed import Faults
from blockhouse_aggregator.runtime.stream.ownership_history import OwnershipHistory
from blockhouse_aggregator.verifier.http import VerifierServer

DOCUMENT = openapi.document("1")


class Everything:
    """Enough of an aggregator and of a verifier to make their servers."""

    faults = Faults(enabled=False)

    def __init__(self) -> None:
        self.registry = CollectorRegistry()

    @property
    def figures(self) -> Everything:
        return self

    @property
    def history(self) -> Any:
        return OwnershipHistory(lambda: 0)

    def rollouts(self) -> Any:
        raise NotImplementedError

    draining = acceptances = rollouts


def served(server: Any) -> set[tuple[str, str]]:
    app = web.Application()
    app.add_routes(server.routes())
    routes = {(route.method.lower(), route.resource.canonical) for route in app.router.routes() if route.resource}
    return {(method, path) for method, path in routes if method != "head"}


def test_it_has_exactly_what_the_programs_answer() -> None:
    programs: list[Any] = [Everything() for _ in range(3)]
    servers = [
        kind(Admin(), of) for kind, of in zip((AdminServer, VerifierServer, ThrottleServer), programs, strict=True)
    ]
    all_of_them = set[tuple[str, str]]().union(*map(served, servers))

    described = {(method, path) for path, item in DOCUMENT["paths"].items() for method in item}

    assert described == all_of_them | {("get", "/healthz"), ("get", "/readyz"), ("get", "/metrics")}


def references(value: Any) -> set[str]:
    if isinstance(value, dict):
        own = {value["$ref"]} if isinstance(value.get("$ref"), str) else set()
        return own.union(*(references(each) for each in value.values()))
    return set().union(*map(references, value)) if isinstance(value, list) else set()


def test_every_reference_leads_to_a_schema_and_every_schema_is_used() -> None:
    schemas = DOCUMENT["components"]["schemas"]

    assert {ref.removeprefix("#/components/schemas/") for ref in references(DOCUMENT)} == set(schemas)


def test_every_key_is_documented() -> None:
    for name, schema in DOCUMENT["components"]["schemas"].items():
        assert schema.get("description"), name
        for key, field in schema.get("properties", {}).items():
            assert field.get("description"), f"{name}.{key}"


@pytest.mark.parametrize("name", ["StatusPage", "Verdict", "DifferenceAnswer"])
def test_what_is_required_is_what_every_version_writes(name: str) -> None:
    schema = DOCUMENT["components"]["schemas"][name]

    absent = set(schema["properties"]) - set(schema["required"])

    later = {
        "StatusPage": {"suspended", "restart", "away", "unfit", "waits", "partitions"},
        "Verdict": {"problems"},
        "DifferenceAnswer": {"statement"},
    }
    assert absent == later[name]


def test_probes_need_no_token_and_all_else_does() -> None:
    assert DOCUMENT["security"] == [{"token": []}, {"header": []}]
    open_paths = {path for path, item in DOCUMENT["paths"].items() for o in item.values() if o.get("security") == []}
    assert open_paths == {"/", "/healthz", "/readyz"}, "the page holds no data"
