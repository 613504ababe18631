"""When a client of Kafka gets the password that its file has now."""

from __future__ import annotations

from pathlib import Path

import pytest

from blockhouse.config.endpoints import KafkaCluster, Sasl, Tls
from blockhouse.config.secrets import SecretRef
from blockhouse.kafka_login import LOOK_SECONDS, Certificates, Login


class Client:
    """Of Kafka, and the time."""

    def __init__(self) -> None:
        self.given: list[tuple[str, str]] = []
        self.now = 0.0

    def clock(self) -> float:
        return self.now

    def set_sasl_credentials(self, username: str, password: str) -> None:
        self.given.append((username, password))


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    file = tmp_path / "password"
    file.write_text("first\n")
    return file


def login(secret: Path, client: Client) -> Login:
    sasl = Sasl(mechanism="SCRAM-SHA-256", username="me", password=SecretRef(file=secret))
    return Login(KafkaCluster(name="a", bootstrap_servers="localhost:9092", sasl=sasl), client.clock)


def test_a_password_that_was_replaced_is_given_once(secret: Path) -> None:
    client = Client()
    kept = login(secret, client)
    secret.write_text("second\n")
    for client.now in (0.0, LOOK_SECONDS, LOOK_SECONDS * 2, LOOK_SECONDS * 3):
        kept.refresh(client)
    assert client.given == [("me", "second")]

    secret.write_text("third\n")
    client.now += LOOK_SECONDS / 2
    kept.refresh(client)
    assert len(client.given) == 1, "the file is not read for each message"
    client.now += LOOK_SECONDS
    kept.refresh(client)
    assert client.given[1:] == [("me", "third")]


@pytest.mark.parametrize("content", [None, ""])
def test_while_there_is_none_the_client_keeps_what_it_has(secret: Path, content: str | None) -> None:
    client = Client()
    kept = login(secret, client)
    client.now = LOOK_SECONDS
    kept.refresh(client)
    if content is None:
        secret.unlink()
    else:
        secret.write_text(content)
    client.now += LOOK_SECONDS
    kept.refresh(client)
    assert client.given == [("me", "first")]

    secret.write_text("second")
    client.now += LOOK_SECONDS
    kept.refresh(client)
    assert client.given[1:] == [("me", "second")]


def test_a_cluster_without_login_needs_none() -> None:
    client = Client()
    kept = Login(KafkaCluster(name="a", bootstrap_servers="localhost:9092"), client.clock)
    client.now = LOOK_SECONDS
    kept.refresh(client)
    assert not client.given


@pytest.mark.parametrize("name", ["ca_file", "cert_file", "key_file"])
def test_any_file_of_another_content_replaces_certificates(tmp_path: Path, name: str) -> None:
    files = {field: tmp_path / field for field in ("ca_file", "cert_file", "key_file")}
    for file in files.values():
        file.write_text("first")
    cluster = KafkaCluster(name="a", bootstrap_servers="localhost:9092", tls=Tls(**files))
    certificates = Certificates(cluster)
    files[name].write_text("first")
    assert not certificates.replaced()
    files[name].write_text("second")
    assert certificates.replaced()
    assert not Certificates(cluster).replaced(), "those are what another client has"
    files[name].unlink()
    assert not certificates.replaced(), "there is nothing to make another client with"


def test_without_files_nothing_is_ever_replaced() -> None:
    assert not Certificates(KafkaCluster(name="a", bootstrap_servers="localhost:9092")).replaced()
    assert not Certificates(KafkaCluster(name="a", bootstrap_servers="localhost:9092", tls=Tls())).replaced()
