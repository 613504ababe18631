"""The admin API against its own description, with requests that are right, wrong and odd: no answer is an internal
error, each is what docs/openapi.yaml promises, and none is given without the token."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Iterator

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_schema_conformance,
    status_code_conformance,
)

from blockhouse.config.pipeline import Admin
from blockhouse.contract import openapi
from tests.unit.admin.stand_in import STOPPED, StandIn, served

TOKEN = "the token"
SCHEMA = schemathesis.openapi.from_dict(openapi.document("1")).include(tag="aggregator")
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
    negative_data_rejection,
]
OPEN = {"/", "/healthz", "/readyz"}


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Of an aggregator whose API runs on a loop of its own."""
    file = tmp_path_factory.mktemp("token") / "token"
    file.write_text(TOKEN)
    found: list[str] = []
    started, over = threading.Event(), threading.Event()

    async def serve() -> None:
        async with served(StandIn(), file) as address:
            found.append(address)
            started.set()
            await asyncio.to_thread(over.wait)

    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    assert started.wait(30)
    yield found[0]
    over.set()
    thread.join()


@pytest.fixture(autouse=True)
def level() -> Iterator[None]:
    before = logging.getLogger().level
    yield
    logging.getLogger().setLevel(before)


@SCHEMA.parametrize()
@settings(
    max_examples=25,
    database=None,
    derandomize=True,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
def test_every_answer_is_as_described(case: schemathesis.Case, url: str) -> None:
    case.call_and_validate(base_url=url, headers={"Authorization": f"Bearer {TOKEN}"}, checks=CHECKS)


def operations() -> list[tuple[str, str]]:
    paths = openapi.document("1")["paths"]
    return [(m, p) for p, found in paths.items() for m, op in found.items() if "aggregator" in op["tags"]]


@pytest.mark.parametrize(("method", "path"), operations())
@pytest.mark.parametrize(
    "header",
    [{}, {"Authorization": "Bearer another"}, {"X-Blockhouse-Token": "another"}],
    ids=["none", "another", "another-header"],
)
def test_nothing_but_probes_answers_without_the_token(url: str, method: str, path: str, header: dict[str, str]) -> None:
    cluster, topic, partition = str(STOPPED).split("/")
    filled = path.format(table="d.t", cluster=cluster, topic=topic, partition=partition, point="on-revoke")
    answer = requests.request(method, url + filled, headers=header, json={}, timeout=10)
    assert answer.status_code == (200 if path in OPEN else 401)


def test_the_token_is_taken_from_either_header(url: str) -> None:
    for header in ({"Authorization": f"Bearer {TOKEN}"}, {"X-Blockhouse-Token": TOKEN}):
        assert requests.get(f"{url}/status", headers=header, timeout=10).status_code == 200


def test_a_token_is_required_outside_of_loopback() -> None:
    with pytest.raises(ValueError, match="token"):
        Admin.model_validate({"host": "0.0.0.0"})
