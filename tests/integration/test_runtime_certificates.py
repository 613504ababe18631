"""An aggregator and a verifier that run while the certificates of a Kafka cluster are replaced, brokers first."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.cluster.pki import Authority
from e2e.pipeline import AggregatorProcess, VerifierProcess
from e2e.pipeline.verifier import verifier_of
from e2e.stack import Stack, StackSpec
from tests.integration.kafka_authority import authority_of_brokers
from tests.integration.runtime_pipeline import Loading, loading
from tests.integration.test_runtime_password import LONG, healthy

pytestmark = [pytest.mark.integration, pytest.mark.long, pytest.mark.timeout(600)]

USER, PASSWORD = "loader", "not-secret"


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """Where a pod has the certificates of a client."""
    (folder := tmp_path / "mounted").mkdir()
    return folder


def mount(authority: Authority, files: Path) -> None:
    """Let a client have those of this authority, as a kubelet brings them."""
    certificate, key = authority.issue("client", "/CN=aggregator")
    for file, name in ((authority.certificate, "ca.crt"), (certificate, "tls.crt"), (key, "tls.key")):
        shutil.copyfile(file, files / name)


@pytest.fixture
def running(tmp_path: Path, files: Path) -> Iterator[tuple[Loading, VerifierProcess, Authority]]:
    authority = authority_of_brokers(tmp_path / "authority")
    mount(authority, files)
    (tmp_path / "password").write_text(PASSWORD)
    spec = StackSpec(kafka_clusters=1, replicas=1, kafka_scram={USER: PASSWORD}, kafka_tls=str(authority.folder))
    with Stack(tmp_path / "stack", spec) as stack:
        login = {"mechanism": "SCRAM-SHA-256", "username": USER, "password": {"file": str(tmp_path / "password")}}
        tls = {name: str(files / file) for name, file in FILES.items()}
        cluster = {"name": "a", "bootstrapServers": stack.kafka["a"].sasl_bootstrap, "sasl": login, "tls": tls}
        settings = {"kafka": {"clusters": [cluster], "sessionTimeout": LONG}, "quorum": {"replicas": 1}}
        with loading(stack, tmp_path, "certificates", settings=settings) as pipeline:
            verifier = verifier_of(pipeline.pipeline, clusters=[cluster])
            verifier.start()
            yield pipeline, verifier, authority
            verifier.kill()


FILES = {"caFile": "ca.crt", "certFile": "tls.crt", "keyFile": "tls.key"}


def test_rows_wait_for_the_new_certificates_and_each_is_stored_once(
    running: tuple[Loading, VerifierProcess, Authority], files: Path, tmp_path: Path
) -> None:
    pipeline, verifier, authority = running
    (aggregator,) = pipeline.aggregators
    table = pipeline.feed.table("certified")
    pipeline.feed.send(table, 5)
    pipeline.settle(table)
    processes = aggregator.pid, verifier.pid

    later = authority_of_brokers(tmp_path / "later")
    for name in ("server.pem", "ca.crt"):
        shutil.copyfile(later.folder / name, authority.folder / name)
    (broker,) = pipeline.stack.kafka["a"].brokers
    broker.restart()
    pipeline.feed.send(table, 5)
    pipeline.wait("the aggregator to report it", lambda: aggregator.clusters().get("a", "ok") != "ok")
    pipeline.wait("its streams to stand still", lambda: stands_still(aggregator, pipeline))
    assert pipeline.feed.differences(table), "no client can have read what was sent since"

    mount(later, files)
    pipeline.settle(table)
    pipeline.wait("the status to be right again", lambda: healthy(aggregator))
    assert aggregator.logged("stream.stopped") == []
    assert verifier.settled().verdict == "clean"
    assert processes == (aggregator.pid, verifier.pid)


def stands_still(aggregator: AggregatorProcess, pipeline: Loading) -> bool:
    streams = aggregator.streams()
    return len(streams) == len(pipeline.feed.streams) and all(stream.standing is not None for stream in streams)
