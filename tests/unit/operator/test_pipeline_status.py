"""`blockhouse status --pipeline`, with an API server of our own: what it is asked, and that a pod that does not answer,
or a right that is missing, hides nothing else."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web
from aiohttp.test_utils import TestServer

from blockhouse.cli.status import exit_code
from blockhouse.cli.status_view import Asked, Condition, Found, Resource
from blockhouse.errors import Permanent
from blockhouse.serving import TOKEN_HEADER
from blockhouse.tokens import read_only
from blockhouse_operator.adapters.pipeline_status import pipeline_status
from tests.contract_values import page, stream

PODS = ("events-0-a-0", "events-0-b-0")
FINE = page(stream("a/t/0", lag=0))
NOT_READY = {"type": "Ready", "status": "False", "reason": "NotEnoughReplicas", "message": "1 of 2"}
SELECTOR = "ingest.blockhouse.dev/pipeline=events,app.kubernetes.io/component=replica"


class Cluster:
    """Answers what a person's kubeconfig leads to. Pod a answers with `accepted`; `b` decides about pod b."""

    def __init__(self) -> None:
        self.secrets = {
            "events-internal-read": {"token": read_only("new"), "other-token": read_only("old")},
            "events-internal": {"token": "new", "former-token": "old"},
        }
        """Those that the person may read."""
        self.accepted = {"new", read_only("new")}
        self.conditions: list[dict[str, str]] = []
        self.b = 503
        self.asked: list[tuple[str, str]] = []
        self.selectors: list[str] = []
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._answer)
        self.server = TestServer(app)

    async def _answer(self, request: web.Request) -> web.Response:
        assert request.headers["Authorization"] == "Bearer of a person"
        self.asked.append((request.method, request.path))
        match request.path.split("/")[-2:]:
            case ["blockaggregators", "events"]:
                return web.json_response(self._resource("BlockAggregator", "events"))
            case [_, "clickhouseshardingests"]:
                return self._items(self._resource("ClickHouseShardIngest", "events-0"))
            case [_, "pods"]:
                self.selectors.append(request.query["labelSelector"])
                return self._items(*({"metadata": {"name": name}} for name in PODS))
            case ["secrets", name] if name in self.secrets:
                data = {key: base64.b64encode(value.encode()).decode() for key, value in self.secrets[name].items()}
                return web.json_response({"metadata": {"name": name}, "data": data})
            case ["secrets", _]:
                return self._refused(403, "Forbidden")
            case ["proxy", "status"]:
                return await self._pod(request)
        return self._refused(404, "NotFound")

    async def _pod(self, request: web.Request) -> web.Response:
        if PODS[1] + ":8080" in request.path:
            if not self.b:
                await asyncio.Event().wait()
            return self._refused(self.b, "ServiceUnavailable")
        if request.headers.get(TOKEN_HEADER) not in self.accepted:
            return web.Response(status=401, text="give the token")
        return web.json_response(FINE.written())

    def _resource(self, kind: str, name: str) -> dict[str, Any]:
        return {"kind": kind, "metadata": {"name": name}, "status": {"conditions": self.conditions}}

    @staticmethod
    def _items(*items: Any) -> web.Response:
        return web.json_response({"metadata": {}, "items": items})

    @staticmethod
    def _refused(code: int, reason: str) -> web.Response:
        return web.json_response({"kind": "Status", "reason": reason, "message": "refused"}, status=code)


@asynccontextmanager
async def asking(cluster: Cluster, folder: Path) -> AsyncIterator[str]:
    """The kubeconfig."""
    async with cluster.server as server:
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "c",
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "clusters": [{"name": "c", "cluster": {"server": str(server.make_url("/")).rstrip("/")}}],
            "users": [{"name": "u", "user": {"token": "of a person"}}],
        }
        file = folder / "kubeconfig"
        file.write_text(yaml.safe_dump(config))
        yield str(file)


async def ask(cluster: Cluster, folder: Path, pipeline: str = "events", seconds: float = 5.0) -> Found:
    async with asking(cluster, folder) as kubeconfig:
        return await pipeline_status(pipeline, "ingest", kubeconfig, None, seconds)


async def test_resources_and_pods_are_shown_and_a_dead_pod_hides_no_other(tmp_path: Path) -> None:
    cluster = Cluster()
    found = await ask(cluster, tmp_path)
    assert [each.name for each in found.resources] == ["events", "events-0"]
    fine, dead = found.asked
    assert fine == Asked(PODS[0], FINE, "")
    assert (dead.address, dead.page) == (PODS[1], None)
    assert "503" in dead.error
    assert exit_code(found) == 3
    assert cluster.selectors == [SELECTOR]
    assert {method for method, _ in cluster.asked} == {"GET"}


async def test_a_pod_that_hangs_is_not_waited_for(tmp_path: Path) -> None:
    cluster = Cluster()
    cluster.b = 0
    found = await ask(cluster, tmp_path, seconds=0.5)
    assert found.asked[1].error == "no answer in 0.5 s"
    assert found.asked[0].page == FINE


async def test_while_the_token_is_replaced_either_is_tried(tmp_path: Path) -> None:
    cluster = Cluster()
    cluster.secrets = {"events-internal-read": {"token": read_only("newest"), "other-token": read_only("new")}}
    assert (await ask(cluster, tmp_path)).asked[0].page == FINE


async def test_the_token_that_only_reads_suffices_and_no_other_is_read(tmp_path: Path) -> None:
    cluster = Cluster()
    cluster.accepted = {read_only("new")}
    assert (await ask(cluster, tmp_path)).asked[0].page == FINE
    assert {path.rpartition("/")[2] for _, path in cluster.asked if "/secrets/" in path} == {"events-internal-read"}


@pytest.mark.parametrize("token", [{"token": "new"}, {"token": "newest", "former-token": "new"}])
async def test_a_pod_that_knows_no_such_token_is_asked_with_that_of_the_admin_api(
    tmp_path: Path, token: dict[str, str]
) -> None:
    cluster = Cluster()
    cluster.accepted = {"new"}
    cluster.secrets["events-internal"] = token
    assert (await ask(cluster, tmp_path)).asked[0].page == FINE


async def test_before_there_is_such_a_token_that_of_the_admin_api_is_taken(tmp_path: Path) -> None:
    cluster = Cluster()
    cluster.accepted = {"new"}
    del cluster.secrets["events-internal-read"]
    assert (await ask(cluster, tmp_path)).asked[0].page == FINE


async def test_a_pod_that_accepts_none_that_the_person_may_read_is_named(tmp_path: Path) -> None:
    cluster = Cluster()
    cluster.accepted = {"new"}
    del cluster.secrets["events-internal"]
    found = await ask(cluster, tmp_path)
    assert found.asked[0].page is None
    assert "401" in found.asked[0].error


async def test_without_the_right_to_read_the_token_that_is_named_and_the_resources_are_shown(tmp_path: Path) -> None:
    cluster = Cluster()
    cluster.secrets = {}
    found = await ask(cluster, tmp_path)
    assert found.asked[0].page is None
    assert "secrets/events-internal-read" in found.asked[0].error
    assert len(found.resources) == 2


async def test_a_resource_that_is_not_ready_is_a_trouble(tmp_path: Path) -> None:
    cluster = Cluster()
    cluster.conditions = [NOT_READY]
    found = await ask(cluster, tmp_path)
    assert found.resources[0].ready == Condition(**NOT_READY)
    assert exit_code(found) == 1
    written = json.loads(json.dumps(found.written()))
    assert written["resources"][0] == {"kind": "BlockAggregator", "name": "events", "conditions": [NOT_READY]}


async def test_a_pipeline_that_is_not_there_is_an_error_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(Permanent, match="no BlockAggregator other in namespace ingest"):
        await ask(Cluster(), tmp_path, "other")


def test_one_that_no_operator_has_reported_on_is_not_known_to_be_ready() -> None:
    assert Resource("BlockAggregator", "events", ()).ready.status == "Unknown"
