"""When another content of a Secret restarts pods, and what its hashes show."""

from __future__ import annotations

from typing import Any

import pytest

from blockhouse_operator.api.resource import parse_block_aggregator
from blockhouse_operator.api.status import SecretHash
from blockhouse_operator.decide.references import Reference
from blockhouse_operator.decide.secret_contents import (
    changed_contents,
    content_hashes,
    restart_hash,
    restarting_references,
)
from e2e.scenarios.resources import example, patched

OWN = "events-internal"
KAFKA, SETTINGS = Reference("Secret", "kafka", "word"), Reference("ConfigMap", "more", "more.xml")
SALT = "grains"


def hashes(salt: str = SALT, **words: str) -> tuple[SecretHash, ...]:
    return content_hashes(OWN, {Reference("Secret", name, "word"): word for name, word in words.items()}, salt)


def spec(on_change: str, **fields: Any) -> Any:
    return parse_block_aggregator(patched(example(), rollout={"onSecretChange": on_change}, **fields)).spec


def test_another_content_is_another_hash_and_the_same_one_the_same() -> None:
    assert hashes(kafka="one") == hashes(kafka="one")
    assert changed_contents(hashes(kafka="one", zoo="a"), hashes(kafka="two", zoo="a")) == ("kafka",)


def test_every_key_that_pods_read_counts() -> None:
    certificate, key = Reference("Secret", "tls", "tls.crt"), Reference("Secret", "tls", "tls.key")
    last = content_hashes(OWN, {certificate: "a", key: "b"}, SALT)
    assert changed_contents(last, content_hashes(OWN, {certificate: "a", key: "c"}, SALT)) == ("tls",)


def test_a_secret_and_a_config_map_of_one_name_are_two() -> None:
    both = content_hashes(OWN, {SETTINGS: "a", Reference("Secret", "more", "more.xml"): "a"}, SALT)
    assert len({each.name for each in both}) == 3
    assert len({each.hash for each in both}) == 3


def test_what_was_not_there_at_the_last_look_is_no_change() -> None:
    assert changed_contents(hashes(), hashes(kafka="one")) == ()
    assert changed_contents((), hashes(kafka="one")) == ()
    assert changed_contents(hashes(kafka="one"), hashes()) == ()


def test_hashes_of_another_salt_are_not_compared() -> None:
    assert changed_contents(hashes(kafka="one"), hashes("other", kafka="two")) == ()


def test_shards_are_given_another_text_only_for_a_change_and_only_when_asked_to() -> None:
    last, now = hashes(kafka="one"), hashes(kafka="two")
    assert restart_hash(spec("Reload"), last, now, "before") == "before"
    assert restart_hash(spec("Restart"), now, now, "before") == "before"
    given = restart_hash(spec("Restart"), last, now, "before")
    assert given not in {"", "before"}
    assert restart_hash(spec("Restart"), last, now, given) == given, "the same after a restart of the operator"
    assert restart_hash(spec("Restart"), now, last, given) != given, "back is a change, too"


@pytest.mark.parametrize("kind", ["settingsFrom", "users"])
def test_only_what_pods_read_once_restarts_them(kind: str) -> None:
    fields: dict[str, Any] = {
        "settingsFrom": {"name": "more", "key": "more.xml"},
        "users": [{"name": "anna", "passwordSecretRef": {"name": "anna", "key": "word"}}],
    }
    found = restarting_references(spec("Restart", **{f"clickhouse__managed__{kind}": fields[kind]}))
    assert (SETTINGS in found) is (kind == "settingsFrom")
    assert Reference("Secret", "anna", "word") not in found
    assert any(each.kind == "Secret" for each in found), "the example has credentials"
