"""An aggregator and a verifier that run while the password for Kafka is replaced: in Kafka first, in their file later,
as a kubelet brings a Secret's new content. In between brokers refuse every login.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from blockhouse.kafka_errors import LOGIN_REFUSED
from e2e.pipeline import AggregatorProcess, VerifierProcess
from e2e.pipeline.verifier import verifier_of
from e2e.stack import Stack, StackSpec
from tests.integration.runtime_pipeline import Loading, loading
from tests.integration.test_bug_reports import STREAM
from tests.integration.test_kafka_login import FORMER, PRESENT, USER, replaced
from tests.integration.test_runtime_poison import reasons

pytestmark = [pytest.mark.integration, pytest.mark.long, pytest.mark.timeout(600)]

BAD = b"\x0a\xff"
LONG = "600s"


@dataclass(frozen=True)
class Watched:
    """A pipeline with its verifier, and the file with the password that they log in with."""

    loading: Loading
    verifier: VerifierProcess
    secret: Path
    keeps_streams: bool

    @property
    def aggregator(self) -> AggregatorProcess:
        (aggregator,) = self.loading.aggregators
        return aggregator

    def problem(self) -> str:
        """What the verifier states of the cluster."""
        verdict = self.verifier.verdict()
        return verdict.coverage["a"].problem if verdict is not None else ""


@pytest.fixture(params=[LONG, "6s"], ids=["streams-kept", "streams-lost"])
def watched(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Watched]:
    """With a session that outlasts the time without a login, or one that ends in it."""
    (secret := tmp_path / "password").write_text(FORMER)
    with Stack(tmp_path / "stack", StackSpec(kafka_clusters=1, replicas=1, kafka_scram={USER: FORMER})) as stack:
        login = {"mechanism": "SCRAM-SHA-256", "username": USER, "password": {"file": str(secret)}}
        cluster = {"name": "a", "bootstrapServers": stack.kafka["a"].sasl_bootstrap, "sasl": login}
        settings = {"kafka": {"clusters": [cluster], "sessionTimeout": request.param}, "quorum": {"replicas": 1}}
        with loading(stack, tmp_path, "password", settings=settings) as pipeline:
            verifier = verifier_of(pipeline.pipeline, clusters=[cluster])
            verifier.start()
            yield Watched(pipeline, verifier, secret, keeps_streams=request.param == LONG)
            verifier.kill()


def test_rows_wait_for_the_new_password_and_each_is_stored_once(watched: Watched) -> None:
    loading, aggregator, verifier = watched.loading, watched.aggregator, watched.verifier
    table = loading.feed.table("rotated")
    _, headers = loading.feed.encode(table, [{"id": 1}])
    letters = [loading.feed.raw(BAD, headers, to=STREAM)]
    loading.feed.send(table, 5)
    loading.settle(table)
    processes = aggregator.pid, verifier.pid

    replaced(loading.stack.kafka["a"], PRESENT)
    loading.feed.send(table, 5)
    letters.append(loading.feed.raw(BAD, headers, to=STREAM))

    loading.wait("the aggregator to name the reason", lambda: refused(aggregator.clusters().get("a", "")))
    loading.wait("the verifier to name the reason", lambda: refused(watched.problem()))
    if watched.keeps_streams:
        # Several orders in a row have failed by then: a single one that does is no alarm.
        loading.wait("the alarm", lambda: bool(aggregator.logged("alarm", reason=LOGIN_REFUSED)))
        assert {stream.stream for stream in aggregator.streams()} == {loading.stream(*s) for s in loading.feed.streams}
    assert loading.feed.differences(table), "no client can have read what was sent since"

    watched.secret.write_text(PRESENT)
    loading.settle(table)
    loading.wait("the status to be right again", lambda: healthy(aggregator))
    assert aggregator.logged("stream.stopped") == [], "that would be for a person to decide"
    assert sorted(reasons(loading)) == sorted(f"{loading.stream(*STREAM)}/{offset}" for offset in letters)
    assert verifier.settled().verdict == "clean"
    assert processes == (aggregator.pid, verifier.pid)


def refused(text: str) -> bool:
    return "Authentication failed" in text and "(_AUTHENTICATION)" in text


def healthy(aggregator: AggregatorProcess) -> bool:
    return aggregator.clusters() == {"a": "ok"} and all(stream.standing is None for stream in aggregator.streams())
