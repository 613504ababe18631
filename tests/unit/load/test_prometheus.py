"""Prometheus over real HTTP: a small server with recorded answers, and everything that can be wrong with them."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Thread
from typing import Any
from urllib.parse import parse_qs, urlparse

import pytest

from blockhouse.config.secrets import SecretRef
from blockhouse.errors import Permanent, Retryable
from blockhouse.fleet.load.cluster import ClusterNames
from blockhouse.fleet.load.presets import PRESETS, complete
from blockhouse.fleet.load.prometheus import PrometheusSource
from blockhouse.fleet.load.settings import PrometheusSettings, Queries
from blockhouse.load.model import ProblemKind, Quality, Sample
from blockhouse.placement.model import TopicPartition

NAMES = ClusterNames(
    "cluster-1",
    {0: "10.0.0.10", 1: "10.0.0.11"},
    {"clicks": 2, "idle": 1},
    {TopicPartition("clicks", 0): 0, TopicPartition("clicks", 1): 1, TopicPartition("idle", 0): 0},
)
Result = list[tuple[dict[str, str], Any]]


class FixedNames:
    def names(self) -> ClusterNames:
        return NAMES


class Server(ThreadingHTTPServer):
    """Answers the queries in `answers` by a part of their text; all others are empty vectors."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answers: dict[str, Result] = {}
        self.bodies: dict[str, tuple[int, bytes]] = {}
        self.token: str | None = None
        self.queries: list[str] = []
        self.released = Event()
        self.released.set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        self.server.released.wait(10)
        if self.server.token and self.headers.get("Authorization") != f"Bearer {self.server.token}":
            return self._send(401, b"who are you")
        query = parse_qs(urlparse(self.path).query)["query"][0]
        self.server.queries.append(query)
        for part, (code, body) in self.server.bodies.items():
            if part in query:
                return self._send(code, body)
        result = next((found for part, found in self.server.answers.items() if part in query), [])
        series = [{"metric": labels, "value": [time.time(), str(value)]} for labels, value in result]
        document = {"status": "success", "data": {"resultType": "vector", "result": series}}
        return self._send(200, json.dumps(document).encode())

    def _send(self, code: int, body: bytes) -> None:
        self.send_response(code)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.released.set()
    server.shutdown()
    server.server_close()
    thread.join()


def brokers(*values: float | str, label: Callable[[int], dict[str, str]] | None = None) -> Result:
    return [
        ((label or (lambda n: {"pod": f"kafka-{n}", "instance": f"1.2.3.{n}:9404"}))(n), value)
        for n, value in enumerate(values)
    ]


@pytest.fixture
def healthy(server: Server) -> Server:
    """Two brokers, one topic of two, in the names of Strimzi's exporter."""
    server.answers = {
        "timestamp(": brokers(time.time(), time.time()),
        "_replicationbytesin_total": brokers(50, 60),
        "_replicationbytesout_total": brokers(5, 6),
        "_reassignmentbytesin_total": brokers(1, 0),
        "_reassignmentbytesout_total": brokers(0, 2),
        'topicmetrics_bytesin_total{topic=""}': brokers(100, 200),
        'topicmetrics_bytesout_total{topic=""}': brokers(300, 400),
        'topicmetrics_bytesin_total{topic!=""}': [({"topic": "clicks"}, 300), ({"topic": "other"}, 7)],
        "messagesin_total": [({"topic": "clicks"}, 30)],
        "kafka_log_log_size": [
            ({"topic": "clicks", "partition": "0"}, 270),
            ({"topic": "clicks", "partition": "1"}, "NaN"),
        ],
        "logendoffset[": [({"topic": "clicks", "partition": "0"}, 27)],
    }
    return server


def sample(server: Server, **settings: Any) -> Sample:
    return PrometheusSource(PrometheusSettings(url=server.url, **settings), FixedNames()).sample()


def test_answers_become_brokers_topics_and_partitions(healthy: Server) -> None:
    found = sample(healthy)
    assert {id: (load.rx, load.tx, load.moved_in, load.moved_out) for id, load in found.brokers.items()} == {
        0: (150, 305, 1, 0),
        1: (260, 406, 0, 2),
    }
    assert found.topics.keys() == {"clicks"}
    assert (found.topics["clicks"].bytes, found.topics["clicks"].messages) == (300, 30)
    load = found.partitions[TopicPartition("clicks", 0)]
    assert (load.bytes, load.messages, load.quality) == (270, 27, Quality.ESTIMATED)
    assert TopicPartition("clicks", 1) not in found.partitions
    assert (found.cluster_id, found.source, found.window) == ("cluster-1", "prometheus", 120)
    assert found.age(time.time()) < 5
    assert all("[120s]" in query for query in healthy.queries if "rate(" in query)


def test_names_that_match_nothing_are_shown_beside_the_providers(healthy: Server) -> None:
    (problem,) = sample(healthy).problems
    assert (problem.kind, problem.subject) == (ProblemKind.UNKNOWN, "topics")
    assert "idle" in problem.text
    assert "topic other" in problem.text


def test_without_pods_the_instance_is_looked_up_by_its_host(healthy: Server) -> None:
    def host(n: int) -> dict[str, str]:
        return {"instance": f"10.0.0.{10 + n}:7071"}

    healthy.answers['topicmetrics_bytesin_total{topic=""}'] = brokers(100, 200, label=host)
    assert {id: load.rx for id, load in sample(healthy).brokers.items()} == {0: 150, 1: 260}


def test_a_missing_broker_is_named_and_the_other_is_measured(healthy: Server) -> None:
    for part in ("bytesin", "bytesout"):
        healthy.answers[f'topicmetrics_{part}_total{{topic=""}}'] = brokers(100)
    found = sample(healthy)
    assert found.brokers.keys() == {0}
    assert any(p.subject == "brokers" and "brokers 1" in p.text for p in found.problems), found.problems


def test_a_stale_broker_is_left_out_with_its_age(healthy: Server) -> None:
    healthy.answers["timestamp("] = brokers(time.time(), time.time() - 290)
    found = sample(healthy)
    assert found.brokers.keys() == {0}
    assert [p.subject for p in found.problems if "old" in p.text] == ["broker 1"]


@pytest.mark.parametrize("absurd", ["NaN", "+Inf", -5])
def test_an_absurd_rate_is_named_and_left_out(healthy: Server, absurd: Any) -> None:
    healthy.answers['topicmetrics_bytesin_total{topic=""}'] = brokers(100, absurd)
    found = sample(healthy)
    assert (found.brokers[0].rx, found.brokers[1].rx, found.brokers[1].tx) == (150, None, 406)
    assert [p.subject for p in found.problems if p.kind is ProblemKind.IMPLAUSIBLE] == ["broker 1"]


def test_a_query_that_is_refused_costs_only_itself(healthy: Server) -> None:
    healthy.bodies["messagesin"] = 400, json.dumps({"status": "error", "error": "parse error: x"}).encode()
    found = sample(healthy)
    assert found.topics["clicks"].messages is None
    assert found.brokers.keys() == {0, 1}
    assert [p.subject for p in found.problems if "parse error: x" in p.text] == ["query topic_messages"]


@pytest.mark.parametrize("body", [b"<html>", b"{}", b'{"status":"success","data":{"resultType":"scalar"}}'])
def test_answers_of_something_else_are_no_load(server: Server, body: bytes) -> None:
    server.bodies[""] = 200, body
    with pytest.raises(Retryable, match="Prometheus at"):
        sample(server)


def test_a_wrong_token_is_named_without_showing_it(healthy: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKEN", "open-sesame")
    healthy.token = "another"
    with pytest.raises(Retryable, match="check bearerToken") as error:
        sample(healthy, bearer_token=SecretRef(env="TOKEN"))
    assert "open-sesame" not in str(error.value)
    healthy.token = "open-sesame"
    assert sample(healthy, bearer_token=SecretRef(env="TOKEN")).brokers


def test_no_server_and_a_silent_one_may_be_asked_again(server: Server) -> None:
    server.released.clear()
    with pytest.raises(Retryable, match="did not answer: timed out"):
        sample(server, timeout=0.2)
    with pytest.raises(Retryable, match="refused"):
        PrometheusSource(PrometheusSettings(url="http://127.0.0.1:1"), FixedNames()).sample()


def test_ones_own_queries_replace_those_of_the_preset_and_empty_ones_are_not_asked(healthy: Server) -> None:
    own = Queries(bytes_in="my_rate", partition_bytes="", partition_messages="")
    healthy.answers["my_rate"] = brokers(1000, 2000)
    found = sample(healthy, queries=own)
    assert (found.brokers[0].rx, found.partitions) == (1050, {})
    assert "my_rate" in healthy.queries


@pytest.mark.parametrize("preset", sorted(PRESETS))
def test_every_preset_asks_for_brokers_and_topics(preset: str) -> None:
    assert {"bytes_in", "bytes_out", "replication_in", "moved_in", "topic_bytes", "measured_at"} <= complete(
        preset, Queries()
    ).keys()


def test_a_broken_token_reference_is_a_fault_of_the_configuration(healthy: Server) -> None:
    with pytest.raises(Permanent, match="NO_SUCH_TOKEN"):
        sample(healthy, bearer_token=SecretRef(env="NO_SUCH_TOKEN"))
