"""What client errors, broker facts and settings mean, without a broker."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError, KafkaException

from blockhouse.config.endpoints import KafkaCluster, Sasl
from blockhouse.config.pipeline import Kafka
from blockhouse.config.secrets import SecretRef
from blockhouse.errors import Permanent, Retryable
from blockhouse.kafka_errors import translate
from blockhouse.streams import StreamId
from blockhouse_aggregator.kafka import fetch, session
from blockhouse_aggregator.kafka.dead_letters import DeadLetter
from blockhouse_aggregator.kafka.facts import OffsetsTopicFacts
from blockhouse_aggregator.kafka.group import judge
from blockhouse_aggregator.protocol.commits import APPLIED, Refused, Unknown


def test_a_commit_answered_without_an_error_is_committed() -> None:
    assert judge(None) == APPLIED


@pytest.mark.parametrize(
    "code",
    [
        KafkaError.UNKNOWN_MEMBER_ID,
        KafkaError.FENCED_INSTANCE_ID,
        KafkaError.OFFSET_METADATA_TOO_LARGE,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
    ],
)
def test_what_the_coordinator_checks_before_it_writes_is_refused_for_good(code: int) -> None:
    outcome = judge(KafkaError(code))
    assert isinstance(outcome, Refused)
    assert not outcome.retry
    assert outcome.reason


@pytest.mark.parametrize("code", [KafkaError.REBALANCE_IN_PROGRESS, KafkaError.ILLEGAL_GENERATION])
def test_a_commit_that_met_a_rebalance_is_refused_and_may_be_sent_again(code: int) -> None:
    outcome = judge(KafkaError(code))
    assert isinstance(outcome, Refused)
    assert outcome.retry


@pytest.mark.parametrize(
    "code",
    [
        KafkaError._TIMED_OUT,
        KafkaError._TRANSPORT,
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError.NOT_COORDINATOR,  # also: written, then leadership was lost before it was replicated
        KafkaError.COORDINATOR_NOT_AVAILABLE,  # also: written, but too few replicas have it yet
        KafkaError.UNKNOWN,
    ],
)
def test_whatever_may_have_been_written_is_unknown(code: int) -> None:
    assert isinstance(judge(KafkaError(code)), Unknown)


def test_an_unlisted_error_is_unknown_for_commits_and_retryable_otherwise() -> None:
    assert isinstance(judge(KafkaError(KafkaError.KAFKA_STORAGE_ERROR)), Unknown)
    assert isinstance(translate(KafkaError(KafkaError.KAFKA_STORAGE_ERROR), "x"), Retryable)


def test_a_translated_error_names_the_action_the_cause_and_what_to_do() -> None:
    error = translate(KafkaException(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)), "reading stream a/t/0")
    assert isinstance(error, Permanent)
    assert error.reason == "NotAuthorized"
    assert error.code == KafkaError.TOPIC_AUTHORIZATION_FAILED
    assert "reading stream a/t/0" in str(error)
    assert "grant" in str(error)


def test_being_fenced_is_recognised_behind_the_fatal_error_that_hides_it() -> None:
    inner = KafkaError(KafkaError.FENCED_INSTANCE_ID).str()
    error = translate(KafkaError(KafkaError._FATAL, f"Fatal error: {inner}: Fatal consumer error"), "x")
    assert isinstance(error, Permanent)
    assert error.reason == "InstanceFenced"
    other = translate(KafkaError(KafkaError._FATAL, "Fatal error: out of memory"), "x")
    assert isinstance(other, Permanent)
    assert other.reason == "ClientFatal"


@pytest.mark.parametrize("commit_timeout", [0.5, 10, 60])
def test_the_client_cannot_retry_a_commit_by_itself_before_we_stop_waiting(commit_timeout: float) -> None:
    cluster = KafkaCluster(name="a", bootstrap_servers="h:1")
    kafka = Kafka(topic="t", group="g", clusters=(cluster,), commit_timeout=commit_timeout)
    config = session.settings(cluster, kafka, "r1")
    assert config["retry.backoff.ms"] * 0.8 > commit_timeout * 1000
    assert config["retry.backoff.max.ms"] >= config["retry.backoff.ms"]
    assert config["max.poll.interval.ms"] > commit_timeout * 1000
    assert config["group.instance.id"] == "r1"
    assert config["enable.auto.commit"] is False


def test_readers_and_members_connect_with_the_secrets_of_the_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PASSWORD", "s3cret")
    sasl = Sasl(mechanism="SCRAM-SHA-512", username="u", password=SecretRef(env="PASSWORD"))
    cluster = KafkaCluster(name="a", bootstrap_servers="h:1", sasl=sasl)
    kafka = Kafka(topic="t", group="g", clusters=(cluster,))
    for config in (session.settings(cluster, kafka, "r1"), fetch.settings(cluster, "g", 16 << 20, 0.1)):
        assert (config["security.protocol"], config["sasl.password"]) == ("SASL_PLAINTEXT", "s3cret")
        assert config["auto.offset.reset"] == "error"


@pytest.mark.parametrize(
    ("facts", "weak"),
    [
        (OffsetsTopicFacts(3, 2, False), None),
        (OffsetsTopicFacts(1, 2, False), "replication factor 1"),
        (OffsetsTopicFacts(3, 1, False), "min.insync.replicas 1"),
        (OffsetsTopicFacts(3, 2, True), "unclean.leader.election.enable true"),
    ],
)
def test_commits_are_durable_only_without_any_weak_setting(facts: OffsetsTopicFacts, weak: str | None) -> None:
    assert facts.durable is (weak is None)
    assert (weak or "") in facts.warning
    assert bool(facts.warning) is not facts.durable


def test_an_offset_out_of_range_states_on_which_side() -> None:
    stream = StreamId("a", "t", 0)
    below, beyond = fetch.OffsetOutOfRange(stream, 3, 6, 10), fetch.OffsetOutOfRange(stream, 11, 6, 10)
    assert (below.reason, beyond.reason) == ("BelowLogStart", "BeyondLogEnd")
    assert "a/t/0 has no offset 3, only [6, 10)" in str(below)


def test_copies_of_one_message_have_one_key_and_keep_the_message_s_own() -> None:
    letter = DeadLetter(StreamId("a", "t", 1), 42, b"k", b"v", [("table", b"x"), ("table", b"y")], 1, "BadRow")
    assert letter.record_key == "a/t/1/42"
    headers = letter.record_headers()
    assert headers[:2] == [("table", b"x"), ("table", b"y")]
    assert dict(headers)["blockhouse.key"] == b"k"
    assert "blockhouse.key" not in dict(
        DeadLetter(StreamId("a", "t", 1), 42, None, b"v", [], 1, "BadRow").record_headers()
    )


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (KafkaError._TRANSPORT, "the broker cannot be reached"),
        (KafkaError._ALL_BROKERS_DOWN, "no broker can be reached"),
        (KafkaError._TIMED_OUT, "the brokers have not answered in time"),
        (KafkaError._NOENT, "no broker leads it now"),
    ],
)
def test_an_error_is_in_plain_words_with_the_client_s_own_behind(code: int, words: str) -> None:
    error = translate(KafkaError(code, "Failed (after 0ms in state CONNECT)"), "reading stream a/t/0")
    own = f"Failed (after 0ms in state CONNECT), {KafkaError(code).name()}"
    assert str(error) == f"Kafka: reading stream a/t/0 failed: {words} ({own})"
