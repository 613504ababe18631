"""The example of docs/producing.md runs as it is shown, with clients of our own in place of Kafka's and ZooKeeper's."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from blockhouse.config.endpoints import ZooKeeper
from blockhouse.config.load import ConfigError
from blockhouse.errors import Retryable
from blockhouse.producer import Producer, producer
from blockhouse.schema.history import first_revision
from blockhouse.schema.model import ServerColumn, TableHistory

PAGE = (Path(__file__).parents[3] / "docs" / "producing.md").read_text()
COLUMNS = {"event_id": "UInt64", "page": "String", "ts": "DateTime"}
HISTORY = TableHistory(
    id=1, name="db.clicks", revisions=(first_revision([ServerColumn(name=n, type=t) for n, t in COLUMNS.items()]),)
)


def block(language: str) -> str:
    """The page's one example in this language."""
    (found,) = re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    return found


class FakePorts:
    """What was asked of the clients, in order."""

    def __init__(self) -> None:
        self.did: list[str] = []
        self.zookeeper: ZooKeeper | None = None
        self.transport: Mapping[str, Any] = {}
        self.clusters: list[Any] = []
        self.sent: list[tuple[Mapping[str, str], bytes | None]] = []
        self.undelivered = False

    @contextmanager
    def connected(self, config: ZooKeeper) -> Iterator[Any]:
        self.zookeeper = config
        self.did.append("connected")
        try:
            yield SimpleNamespace(get={"db.clicks": HISTORY}.get)
        finally:
            self.did.append("disconnected")

    def client(self, clusters: list[Any], topic: str, **settings: Any) -> Any:
        self.clusters, self.transport = clusters, {"topic": topic, **settings}
        return SimpleNamespace(
            send=self._send, poll=lambda: None, flush=self._flush, require_topic=lambda: self.did.append("looked")
        )

    def _send(self, value: bytes, headers: Mapping[str, str], **more: Any) -> None:
        self.sent.append((headers, more["key"]))
        self.did.append("sent")

    def _flush(self, timeout: float) -> None:
        self.did.append("flushed")
        if self.undelivered:
            raise Retryable("messages wait for delivery")


@pytest.fixture
def fakes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakePorts:
    found = FakePorts()
    entry = SimpleNamespace(load=lambda: found.connected)
    monkeypatch.setattr(producer, "entry_points", lambda **_: (entry,))
    monkeypatch.setattr(producer, "Transport", found.client)
    monkeypatch.setenv("KAFKA_PASSWORD", "secret")
    monkeypatch.chdir(tmp_path)
    Path("producer.yaml").write_text(block("yaml"))
    return found


def test_the_example_sends_its_row_by_its_file(fakes: FakePorts) -> None:
    exec(compile(block("python"), "docs/producing.md", "exec"), {})
    assert fakes.sent == [({"table": "db.clicks", "format": "rows", "schema": "1"}, b"user-7")]
    assert fakes.did == ["connected", "looked", "sent", "flushed", "disconnected"]
    assert fakes.zookeeper is not None
    assert fakes.zookeeper.root == "/blockhouse/events"
    assert (fakes.transport["topic"], fakes.transport["settings"]) == ("events-01", {"linger.ms": 20})
    client = fakes.clusters[0].client_config()
    assert (fakes.clusters[0].name, client["security.protocol"], client["sasl.username"]) == (
        "a",
        "SASL_SSL",
        "clicks",
    )


def test_it_disconnects_also_when_messages_are_not_delivered(fakes: FakePorts) -> None:
    fakes.undelivered = True
    sending = Producer.from_config("producer.yaml")
    with pytest.raises(Retryable):
        sending.close()
    assert fakes.did == ["connected", "flushed", "disconnected"]


def test_the_local_cluster_is_preferred_and_is_the_first_by_default(fakes: FakePorts) -> None:
    text = block("yaml")
    Path("b.yaml").write_text(text.replace("local: a", "local: b"))
    Producer.from_config("b.yaml").close()
    assert [each.name for each in fakes.clusters] == ["b", "a"]
    Path("none.yaml").write_text(text.replace("local: a\n", ""))
    Producer.from_config("none.yaml").close()
    assert [each.name for each in fakes.clusters] == ["a", "b"]


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (("local: a", "local: c"), "local is c; there are clusters a, b"),
        (("name: b", "name: a"), "must differ"),
        (("topic:", "topics:"), "did you mean topic"),
        (("kafka-b-1:9093", "kafka-b-1"), "not host:port"),
    ],
)
def test_a_file_that_is_wrong_is_refused_before_anything_is_connected(
    fakes: FakePorts, change: tuple[str, str], problem: str
) -> None:
    Path("wrong.yaml").write_text(block("yaml").replace(*change))
    with pytest.raises(ConfigError, match=problem):
        Producer.from_config("wrong.yaml")
    assert fakes.did == []


def test_schemas_come_from_where_the_wheel_states(monkeypatch: pytest.MonkeyPatch) -> None:
    """The real entry point, with a session of our own in place of a ZooKeeper's."""
    from blockhouse_aggregator.coordination import schema_store

    sessions: list[ZooKeeper] = []

    @contextmanager
    def session(config: ZooKeeper) -> Iterator[Any]:
        sessions.append(config)
        yield SimpleNamespace(znodes=None, path=lambda *names: "/".join(names))

    monkeypatch.setattr(schema_store, "Session", session)
    config = ZooKeeper(servers="zk:2181")
    with producer._schemas(config) as source:
        assert isinstance(source, schema_store.SchemaStore)
    assert sessions == [config]
