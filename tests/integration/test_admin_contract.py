"""One contract for the admin API: what the operator relies on holds of real aggregators and of those that the simulator
plays for clusters in which nothing runs. A change of the real one fails here until the simulator follows.

That the values are those of earlier versions too is for tests/unit/contract to see.
"""

from __future__ import annotations

import asyncio
import json
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from blockhouse.config.load import parse_as
from blockhouse.config.pipeline import AggregatorConfig
from blockhouse.contract.aggregator import CLUSTER_OK, STATUS, Phase, RestartStatus, StatusPage, StreamStatus
from blockhouse.contract.base import Answer, Endpoint, Request
from blockhouse.contract.rollouts import (
    APPLY,
    CONFLICT,
    DIFFERENCE,
    HOLD,
    RELEASE,
    RESTART,
    UNUSABLE,
    ApplyRequest,
    DifferenceAnswer,
    DifferenceRequest,
    HoldRequest,
    ReleaseAnswer,
    RestartAnswer,
    RestartRequest,
)
from blockhouse.streams import StreamId
from blockhouse_operator.adapters.fence import Fence
from blockhouse_operator.adapters.pipeline_http import AdminLogin, PipelineHttp
from e2e.pipeline import Pipeline, PipelineSpec
from e2e.pipeline.aggregator import AggregatorProcess
from e2e.simulator.server import SimulatorServer
from e2e.simulator.world import Program
from e2e.stack import Stack
from e2e.stack.ports import Ports
from e2e.stack.process import wait_until

pytestmark = pytest.mark.integration

TOKEN = "the token of the contract"
PARTITIONS = 3


@dataclass(frozen=True)
class Admin:
    """The API of one aggregator that has the topic to itself."""

    url: str
    config: AggregatorConfig
    start_again: Callable[[], None] = lambda: None
    """What a kubelet does when the process has ended."""

    def get(self, path: str, token: str | None = TOKEN) -> str:
        request = urllib.request.Request(self.url + path)
        if token is not None:
            request.add_header("Authorization", f"Bearer {token}")
        with urllib.request.urlopen(request, timeout=5) as answer:
            body: bytes = answer.read()
            return body.decode()

    def status(self) -> StatusPage:
        return StatusPage.parse(self.get(STATUS.path))

    def code(self, path: str, token: str | None = TOKEN) -> int:
        try:
            self.get(path, token)
        except urllib.error.HTTPError as error:
            return error.code
        return 200

    def ask(self, endpoint: Endpoint, body: Request, table: str = "") -> Answer:
        """What is answered. Nothing of it is unknown to the contract."""
        headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}
        data = json.dumps(body.written()).encode()
        url = self.url + endpoint.at(table=table)
        request = urllib.request.Request(url, data=data, method=endpoint.method, headers=headers)
        with urllib.request.urlopen(request, timeout=60) as answer:
            text: bytes = answer.read()
        found = endpoint.answer.parse(text)
        assert found.written() == json.loads(text)
        return found

    def refusal(self, endpoint: Endpoint, body: Request, table: str = "") -> int:
        """The code with which it is refused."""
        try:
            self.ask(endpoint, body, table)
        except urllib.error.HTTPError as error:
            return error.code
        return 200

    def consumes(self) -> bool:
        states = [stream.state for stream in self.status().streams]
        return len(states) == PARTITIONS * len(self.config.kafka.clusters) and set(states) == {Phase.CONSUME}


@contextmanager
def real(pipeline: Pipeline, aggregator: AggregatorProcess) -> Iterator[str]:
    with pipeline:
        pipeline.start()
        yield aggregator.url


@contextmanager
def simulated(config: AggregatorConfig, port: int) -> Iterator[str]:
    """The simulator's server in this process, given one pod without a Kubernetes."""
    server = SimulatorServer(port)
    key = ("ns", config.replica)

    def follow(server: SimulatorServer, loop: asyncio.AbstractEventLoop) -> None:
        loop.call_soon_threadsafe(
            lambda: server.world.put(key, Program("uid", config, TOKEN), time.monotonic()),
        )

    loop = asyncio.new_event_loop()
    task = loop.create_task(server.run(follow))
    thread = threading.Thread(target=lambda: loop.run_until_complete(asyncio.gather(task, return_exceptions=True)))
    thread.start()
    try:
        url = f"http://127.0.0.1:{port}"
        assert wait_until(lambda: not task.done() and _listens(url), timeout=60), "the simulator does not listen"
        yield f"{url}/ns/{config.replica}"
    finally:
        loop.call_soon_threadsafe(task.cancel)
        thread.join(30)


def _listens(url: str) -> bool:
    try:
        urllib.request.urlopen(f"{url}/healthz", timeout=2).close()
    except OSError:
        return False
    return True


@pytest.fixture(scope="module", params=["real", "simulated"])
def admin(
    request: pytest.FixtureRequest, running_stack: Stack, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Admin]:
    kind: str = request.param
    folder: Path = tmp_path_factory.mktemp(f"contract-{kind}")
    spec = PipelineSpec(
        name=f"contract-{kind}",
        topic=f"contract-{kind}",
        partitions=PARTITIONS,
        aggregators=1,
        overrides={"admin": {"token": {"env": "CONTRACT_TOKEN"}}},
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CONTRACT_TOKEN", TOKEN)
        pipeline = Pipeline(running_stack, folder, spec)
        pipeline.create_topic()
        (aggregator,) = pipeline.aggregators.values()
        config = parse_as(AggregatorConfig, json.dumps(aggregator.config))
        running = real(pipeline, aggregator) if kind == "real" else simulated(config, Ports()["simulator"])
        with running as url:
            found = Admin(url, config, lambda: _start_again(aggregator)) if kind == "real" else Admin(url, config)
            assert wait_until(lambda: _consumes(found), timeout=90), _last_words(aggregator)
            yield found


def _start_again(aggregator: AggregatorProcess) -> None:
    assert wait_until(lambda: not aggregator.alive, timeout=60), "it does not end"
    assert aggregator.exit_code == 0
    aggregator.start()


def _consumes(admin: Admin) -> bool:
    try:
        return admin.consumes()
    except OSError:
        return False


def _last_words(aggregator: AggregatorProcess) -> str:
    return aggregator.log.read_text()[-3000:] if aggregator.log.exists() else "it left no log"


def test_probes_need_no_token(admin: Admin) -> None:
    assert admin.get("/healthz", None) == "ok\n"
    assert admin.get("/readyz", None) == "ready\n"


@pytest.mark.parametrize("path", ["/status", "/metrics"])
def test_everything_else_needs_the_token(admin: Admin, path: str) -> None:
    assert [admin.code(path, token) for token in (None, "", "another", TOKEN)] == [401, 401, 401, 200]


def test_an_unknown_page_is_not_found(admin: Admin) -> None:
    assert admin.code("/no-such-page") == 404


def test_the_status_page_is_a_value_of_the_contract_and_no_more(admin: Admin) -> None:
    text = admin.get(STATUS.path)
    page = StatusPage.parse(text)
    assert page.written() == json.loads(text)
    later = StatusPage.model_fields.keys() - {"waits"}  # absent when the start is over
    assert page.model_fields_set == later, "a program of today writes the later keys too"
    assert (page.pipeline, page.shard, page.replica) == (
        admin.config.pipeline,
        admin.config.shard,
        admin.config.replica,
    )
    assert page.ready
    assert page.clusters == {"a": CLUSTER_OK, "b": CLUSTER_OK}


def test_of_a_stream_that_consumes_everything_is_known(admin: Admin) -> None:
    """Rates are known once two answers of the brokers differ in time."""
    may_be_absent = {"stopped", "standing", "arriving", "storing", "lag_by_rate"}

    def unknown() -> set[str]:
        streams = admin.status().streams
        return set[str]().union(*(StreamStatus.model_fields.keys() - s.model_fields_set for s in streams))

    assert wait_until(lambda: unknown() <= may_be_absent, timeout=60), unknown()
    assert {"stopped", "standing"} <= unknown()
    assert all(stream.drained for stream in admin.status().streams)


DDL = "CREATE TABLE contract (id UInt64, text String) ENGINE = MergeTree ORDER BY id"
WIDER = DDL.replace("text String", "text String, extra UInt32 DEFAULT 7")


def missing(admin: Admin, ddl: str, table: str) -> DifferenceAnswer:
    found = admin.ask(DIFFERENCE, DifferenceRequest(ddl=ddl), table)
    return without_sql(found)


def without_sql(found: object) -> DifferenceAnswer:
    """An aggregator that is played states none."""
    assert isinstance(found, DifferenceAnswer)
    return found.model_copy(update={"statement": ""})


SAME = DifferenceAnswer(exists=True, added=(), refused=())
LACKS = DifferenceAnswer(exists=True, added=("extra",), refused=())
MINE, OTHER = HoldRequest(rollout="r"), HoldRequest(rollout="another")


def test_a_table_is_created_held_altered_and_released(admin: Admin) -> None:
    table = f"default.contract_{admin.config.replica}_{admin.config.pipeline.replace('-', '_')}"
    ddl, wider = (text.replace("contract", table, 1) for text in (DDL, WIDER))
    gap = missing(admin, ddl, table)
    assert (gap.exists, gap.refused, gap.added[:2]) == (False, (), ("id", "text"))
    admin.ask(APPLY, ApplyRequest(ddl=ddl, rollout="r"), table)
    assert missing(admin, ddl, table) == SAME
    assert missing(admin, wider, table) == LACKS
    assert admin.refusal(APPLY, ApplyRequest(ddl=wider, rollout="r"), table) == CONFLICT, "it is not held"
    admin.ask(HOLD, MINE, table)
    assert admin.refusal(HOLD, OTHER, table) == CONFLICT
    assert without_sql(admin.ask(APPLY, ApplyRequest(ddl=wider, rollout="r"), table)) == LACKS
    assert missing(admin, wider, table) == SAME
    assert admin.ask(RELEASE, MINE, table) == ReleaseAnswer(released=True)
    assert admin.ask(RELEASE, MINE, table) == ReleaseAnswer(released=False)


def test_what_no_rollout_may_do_is_refused(admin: Admin) -> None:
    table = f"default.refused_{admin.config.replica}_{admin.config.pipeline.replace('-', '_')}"
    ddl = DDL.replace("contract", table, 1)
    admin.ask(APPLY, ApplyRequest(ddl=ddl, rollout="r"), table)
    dropped = missing(admin, ddl.replace(", text String", ""), table)
    assert dropped.refused == ("column text is on the server and not in the DDL: columns are never dropped",)
    assert admin.refusal(DIFFERENCE, DifferenceRequest(ddl="CREATE TABEL x"), table) == UNUSABLE


class Later(HoldRequest):
    surprise: int = 0


def test_a_key_of_a_request_that_it_does_not_know_is_refused(admin: Admin) -> None:
    assert admin.refusal(HOLD, Later(rollout="r", surprise=1), "default.contract") == 400


def test_an_aggregator_restarts_once_for_a_demand(admin: Admin) -> None:
    table = f"default.restarted_{admin.config.replica}_{admin.config.pipeline.replace('-', '_')}"
    ddl, wider = (text.replace("contract", table, 1) for text in (DDL, WIDER))
    admin.ask(APPLY, ApplyRequest(ddl=ddl, rollout="r"), table)
    before = admin.status().restart
    assert before.demanded == before.seen
    admin.ask(HOLD, MINE, table)
    admin.ask(APPLY, ApplyRequest(ddl=wider, rollout="r", restart=True), table)
    admin.ask(RELEASE, MINE, table)
    demanded = before.demanded + 1
    assert admin.status().restart == RestartStatus(demanded=demanded, seen=before.seen)
    assert admin.ask(RESTART, RestartRequest(number=before.seen)) == RestartAnswer(ends=False), "that is done"
    assert admin.ask(RESTART, RestartRequest(number=demanded)) == RestartAnswer(ends=True)
    admin.start_again()
    assert wait_until(lambda: _restarted(admin, demanded), timeout=120, interval=0.2)
    assert admin.ask(RESTART, RestartRequest(number=demanded)) == RestartAnswer(ends=False)


def _restarted(admin: Admin, number: int) -> bool:
    try:
        return admin.status().restart == RestartStatus(demanded=number, seen=number) and admin.consumes()
    except OSError:
        return False


def test_one_aggregator_alone_owns_every_stream(admin: Admin) -> None:
    streams = [StreamId.parse(stream.stream) for stream in admin.status().streams]
    expected = [StreamId(cluster, admin.config.kafka.topic, n) for cluster in ("a", "b") for n in range(PARTITIONS)]
    assert sorted(streams) == expected


def test_a_status_that_is_known_is_not_sent_again(admin: Admin) -> None:
    request = urllib.request.Request(admin.url + STATUS.path, headers={"Authorization": f"Bearer {TOKEN}"})
    with urllib.request.urlopen(request, timeout=5) as answer:
        request.add_header("If-None-Match", answer.headers["ETag"])
    with pytest.raises(urllib.error.HTTPError) as known:
        urllib.request.urlopen(request, timeout=5)
    assert (known.value.code, known.value.read()) == (304, b"")


async def test_the_operator_understands_it(admin: Admin) -> None:
    client = PipelineHttp(Fence(1))
    try:
        seen = await client.aggregator(admin.url, AdminLogin(TOKEN))
    finally:
        await client.close()
    assert seen.ready
    assert {stream.phase for stream in seen.streams} == {"CONSUME"}
    assert all(stream.drained for stream in seen.streams)
    assert dict(seen.clusters) == {}
