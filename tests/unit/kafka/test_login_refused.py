"""A login that is refused: for how long it explains what fails beside it, and that nothing stops for it."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError, KafkaException

from blockhouse.errors import Retryable
from blockhouse.kafka_errors import LOGIN_REFUSED, LoginRefusal, translate

TIMED_OUT = KafkaException(KafkaError(KafkaError._TIMED_OUT))


@pytest.mark.parametrize(
    "code",
    [KafkaError._AUTHENTICATION, KafkaError.SASL_AUTHENTICATION_FAILED, KafkaError.UNSUPPORTED_SASL_MECHANISM],
)
def test_a_refused_login_is_tried_again_and_names_its_reason(code: int) -> None:
    found = translate(KafkaError(code), "reading")
    assert isinstance(found, Retryable)
    assert (found.reason, found.code, found.after) == (LOGIN_REFUSED, code, 1.0)


def test_it_explains_what_fails_until_a_broker_answers() -> None:
    refusal, refused = LoginRefusal(), KafkaError(KafkaError._AUTHENTICATION)
    refusal.note(refused)
    refusal.note(KafkaError(KafkaError._ALL_BROKERS_DOWN))
    assert [refusal.behind(TIMED_OUT), refusal.behind(TIMED_OUT)] == [refused, refused]
    refusal.over()
    assert refusal.behind(TIMED_OUT) is TIMED_OUT
