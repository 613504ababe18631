"""`KafkaFleet` and brokers that die: the client is a pretended one, real brokers die in the integration tests."""

from __future__ import annotations

from typing import Any

import pytest
from kafka.errors import (  # type: ignore[import-untyped]
    ClusterAuthorizationFailedError,
    KafkaConnectionError,
    KafkaTimeoutError,
    ThrottlingQuotaExceededError,
    TopicAlreadyExistsError,
)

from blockhouse.config.endpoints import KafkaCluster
from blockhouse.errors import Permanent, Retryable
from blockhouse.fleet import kafka_client
from blockhouse.fleet.kafka_admin import KafkaFleet

ANSWER = {"brokers": [{"broker_id": 1, "rack": "a", "is_fenced": False}]}


class Client:
    """Raises what is left of `errors`, one at a call, then answers; counts the connections made of it."""

    def __init__(self, *errors: Exception, unconnected: int = 0) -> None:
        self.errors = list(errors)
        self.made = self.closed = 0
        self.unconnected = unconnected
        """Attempts to connect that fail."""
        self.attempts: list[int] = []

    def connect(self, _: KafkaCluster, *_patience: int, attempt: int) -> Client:
        self.attempts.append(attempt)
        if attempt < self.unconnected:
            raise KafkaTimeoutError("Unable to bootstrap")
        self.made += 1
        return self

    def close(self) -> None:
        self.closed += 1

    def describe_cluster(self) -> dict[str, Any]:
        if self.errors:
            raise self.errors.pop(0)
        return ANSWER

    def create_topics(self, _: dict[str, Any]) -> None:
        raise self.errors.pop(0)


@pytest.fixture
def fleet_of(monkeypatch: pytest.MonkeyPatch) -> Any:
    def made(client: Client) -> KafkaFleet:
        monkeypatch.setattr(kafka_client, "connect", client.connect)
        monkeypatch.setattr(kafka_client, "RETRY_WAIT", 0.0)
        return KafkaFleet(KafkaCluster(name="dc1", bootstrap_servers="kafka-1:9092,kafka-2:9092"))

    return made


def test_attempts_to_connect_are_counted_until_one_succeeds(fleet_of: Any) -> None:
    client = Client(KafkaConnectionError("closed"), unconnected=2)

    assert list(fleet_of(client).brokers()) == [1]
    assert client.attempts == [0, 1, 2, 0, 1, 2]


@pytest.mark.parametrize(
    ("attempt", "servers"),
    [(0, ["k-1:9092", "k-2:9092", "k-3:9092"]), (1, ["k-2:9092"]), (2, ["k-3:9092"]), (3, ["k-1:9092"])],
)
def test_an_attempt_after_a_failed_one_asks_one_server_and_each_time_another(
    monkeypatch: pytest.MonkeyPatch, attempt: int, servers: list[str]
) -> None:
    asked: list[list[str]] = []
    monkeypatch.setattr(kafka_client, "AdminClient", lambda **options: asked.append(options["bootstrap_servers"]))
    cluster = KafkaCluster(name="dc1", bootstrap_servers="k-1:9092,k-2:9092,k-3:9092")
    kafka_client.connect(cluster, attempt=attempt)
    assert asked == [servers]


def test_a_new_connection_may_meet_the_dead_broker_too(fleet_of: Any) -> None:
    client = Client(*[KafkaConnectionError("111 ECONNREFUSED")] * 5)

    assert list(fleet_of(client).brokers()) == [1]
    assert (client.made, client.closed) == (6, 5)


def test_a_cluster_that_never_answers_is_named(fleet_of: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka_client, "PATIENCE", 0.0)
    client = Client(KafkaConnectionError("111 ECONNREFUSED"), KafkaConnectionError("asked once too often"))

    with pytest.raises(Retryable, match="cluster dc1 at kafka-1:9092,kafka-2:9092 did not answer describe_cluster"):
        fleet_of(client).brokers()
    assert (client.made, client.closed) == (1, 1)


def test_a_refusal_is_final(fleet_of: Any) -> None:
    client = Client(ClusterAuthorizationFailedError("not you"), ClusterAuthorizationFailedError("asked again"))

    with pytest.raises(Permanent, match="refused describe_cluster"):
        fleet_of(client).brokers()
    assert len(client.errors) == 1


def test_what_another_client_did_already_is_an_answer(fleet_of: Any) -> None:
    client = Client(TopicAlreadyExistsError("orders"))

    fleet_of(client).create_topic("orders", 1, 1, {})
    assert client.closed == 0


class Settings(Client):
    """Answers every change with `result`, and remembers what it was asked."""

    def __init__(self, result: str) -> None:
        super().__init__()
        self.result = result
        self.asked: list[Any] = []

    def alter_configs(self, resources: list[Any], **options: Any) -> dict[str, dict[str, str]]:
        self.asked += [(resource.name, resource.configs, options) for resource in resources]
        return {"topic": dict.fromkeys((resource.name for resource in resources), self.result)}


def test_a_refusal_that_the_client_returns_as_a_text_is_raised(fleet_of: Any) -> None:
    client = Settings("[Error 40] InvalidConfigurationError: Invalid value abc for configuration retention.ms")
    with pytest.raises(Permanent, match=r"settings of topic t \(retention.ms\): Invalid value abc") as raised:
        fleet_of(client).change_topic("t", {"retention.ms": "abc"})
    assert raised.value.reason == "InvalidConfigurationError"


def test_a_passing_refusal_of_a_setting_is_no_permanent_one(fleet_of: Any) -> None:
    with pytest.raises(Retryable, match="NotControllerError"):
        fleet_of(Settings("[Error 41] NotControllerError: this is not the correct controller")).change_topic(
            "t", {"a": "b"}
        )


def test_a_change_without_names_asks_nothing_for_it_would_mean_all_settings(fleet_of: Any) -> None:
    client = Settings("OK")
    fleet_of(client).change_topic("t", {}, ())
    assert client.asked == []
    fleet_of(client).change_topic("t", {"a": "1"}, ["b"])
    assert client.asked == [("t", {"a": (0, "1"), "b": (1, None)}, {"raise_on_unknown": False, "incremental": True})]


def test_what_the_client_refuses_by_itself_is_a_refusal_too(fleet_of: Any) -> None:
    """It raises ValueError for a setting's name; that once passed through a shard's whole reconcile."""
    client = Client()
    client.errors.append(ValueError("Unrecognized configs: {'retension.ms'}"))
    with pytest.raises(Permanent, match="retension"):
        fleet_of(client).brokers()


def test_a_quota_that_refuses_for_now_is_named_with_user_and_remedy(
    fleet_of: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kafka_client, "PATIENCE", 0.0)
    client = Client(ThrottlingQuotaExceededError("too much"), ThrottlingQuotaExceededError("asked once too often"))

    with pytest.raises(Retryable, match=r"client blockhouse-topics .* quota controller_mutation_rate") as raised:
        fleet_of(client).create_topic("orders", 50, 1, {})
    assert raised.value.reason == "QuotaExceeded"
    assert client.closed == 0, "another connection would be delayed all the same"


class Hidden(Client):
    """Answers as kafka-python does where something may not be read: with nothing, and no error."""

    unknown_topics: tuple[str, ...] = ()

    def describe_configs(self, resources: list[Any], **_: Any) -> dict[str, dict[str, Any]]:
        kinds = {resource.resource_type.name.lower() for resource in resources}
        return {kind: {resource.name: {} for resource in resources} for kind in kinds}

    def describe_topics(self, topics: list[str]) -> list[dict[str, Any]]:
        codes = dict.fromkeys(self.unknown_topics, 3) | {"hidden": 29}
        return [{"name": topic, "error_code": codes.get(topic, 0)} for topic in topics]

    def describe_log_dirs(self, brokers: list[int]) -> list[dict[str, Any]]:
        return [{"broker": id, "log_dirs": []} for id in brokers]


def test_settings_that_may_not_be_read_are_not_taken_for_none(fleet_of: Any) -> None:
    fleet = fleet_of(Hidden())
    with pytest.raises(Permanent, match=r"settings of broker 1: .* --operation DescribeConfigs --cluster"):
        fleet.broker_settings([1], ["leader.replication.throttled.rate"])
    with pytest.raises(Permanent, match=r"settings of topic t: .* --operation DescribeConfigs --topic t"):
        fleet.topic_settings(["t"], ["leader.replication.throttled.replicas"])


def test_a_broker_that_does_not_know_a_new_topic_yet_is_asked_again(fleet_of: Any) -> None:
    client = Hidden()
    fleet = fleet_of(client)
    late, answers = client.describe_configs, []

    def answer(resources: list[Any], **options: Any) -> dict[str, Any]:
        answers.append(resources)
        if len(answers) == 1:
            return late(resources, **options)
        policy = {"value": "delete", "config_source": "DEFAULT_CONFIG"}
        return {"topic": {resource.name: {"cleanup.policy": policy} for resource in resources}}

    client.describe_configs = answer  # type: ignore[method-assign]
    assert fleet.topic_settings(["new"], ["leader.replication.throttled.replicas"]) == {"new": {}}


def test_settings_of_a_topic_that_is_gone_are_left_out(fleet_of: Any) -> None:
    client = Hidden()
    client.unknown_topics = ("gone",)
    assert fleet_of(client).topic_settings(["gone"], ["leader.replication.throttled.replicas"]) == {}


def test_a_topic_that_is_hidden_is_not_taken_for_deleted(fleet_of: Any) -> None:
    client = Hidden()
    client.unknown_topics = ("gone",)
    fleet_of(client).require_visible(["gone", "not known to a broker yet"])
    with pytest.raises(Permanent, match="--operation Describe --topic hidden"):
        fleet_of(client).require_visible(["gone", "hidden"])


def test_sizes_that_may_not_be_read_are_not_taken_for_zero(fleet_of: Any) -> None:
    with pytest.raises(Permanent, match=r"describe_log_dirs: .* --operation Describe --cluster"):
        fleet_of(Hidden()).storage()
