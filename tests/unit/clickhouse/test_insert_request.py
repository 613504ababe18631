"""What may be sent as a block, and with which settings."""

from __future__ import annotations

import dataclasses

import pytest

from blockhouse.errors import Permanent
from blockhouse_aggregator.clickhouse.model import (
    MAX_BYTES,
    MAX_ROWS,
    Features,
    InsertRequest,
    difference,
    reports_duplicate,
)
from blockhouse_aggregator.clickhouse.names import identifiers, qualified

BASE_SETTINGS = frozenset({"insert_quorum", "insert_quorum_timeout", "insert_deduplicate", "send_logs_level"})
OLD = Features((18, 16, 1), BASE_SETTINGS, settings_as_text=False)
NEW = Features(
    (26, 9, 2),
    BASE_SETTINGS
    | {"insert_deduplication_token", "insert_quorum_parallel", "async_insert", "deduplicate_insert"}
    | {"deduplicate_blocks_in_dependent_materialized_views", "insert_keeper_max_retries"},
    settings_as_text=True,
)
REQUEST = InsertRequest(
    database="db",
    table="clicks",
    header=(("id", "UInt64"), ("text", "String")),
    body=b"\x02\xac\x02...",  # 2 columns, 300 rows
    rows=300,
    quorum=2,
    quorum_timeout=5.0,
    token="T/0/clicks/1-2",
    lifetime=20.0,
)


def test_a_well_formed_request_passes() -> None:
    REQUEST.check()


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"rows": 299}, "MalformedBlock"),
        ({"header": (("id", "UInt64"),)}, "MalformedBlock"),
        ({"body": b"\x02\x00", "rows": 0}, "MalformedBlock"),
        ({"body": b""}, "MalformedBlock"),
        ({"rows": MAX_ROWS}, "BlockTooLarge"),
        ({"body": bytes(MAX_BYTES)}, "BlockTooLarge"),
    ],
)
def test_a_block_that_is_not_one_data_packet_of_its_header_is_refused(change: dict[str, object], reason: str) -> None:
    with pytest.raises(Permanent) as refused:
        dataclasses.replace(REQUEST, **change).check()  # type: ignore[arg-type]
    assert refused.value.reason == reason


def test_waiting_for_the_quorum_longer_than_the_block_may_live_is_a_mistake() -> None:
    with pytest.raises(ValueError, match="lifetime"):
        dataclasses.replace(REQUEST, quorum_timeout=20.0).check()


def test_an_old_server_gets_no_setting_it_does_not_know() -> None:
    settings = REQUEST.settings(OLD)
    assert settings["insert_quorum"] == 2
    assert settings["insert_quorum_timeout"] == 5000
    assert settings["insert_deduplicate"] == 1
    assert not settings.keys() & {"insert_deduplication_token", "insert_quorum_parallel", "async_insert"}


def test_a_current_server_gets_the_token_and_nothing_that_weakens_it() -> None:
    settings = REQUEST.settings(NEW)
    assert settings["insert_deduplication_token"] == "T/0/clicks/1-2"
    assert settings["insert_quorum_parallel"] == 0
    assert settings["async_insert"] == 0
    assert settings["deduplicate_insert"] == "enable"
    assert settings["insert_keeper_max_retries"] == 0
    assert settings["deduplicate_blocks_in_dependent_materialized_views"] == 1
    assert settings.keys() <= NEW.settings | {"max_execution_time"}


def test_a_switch_that_the_server_has_otherwise_is_named() -> None:
    effective = {name: str(value) for name, value in NEW.switches.items()}
    assert NEW.refused(effective) is None
    text = NEW.refused({**effective, "deduplicate_insert": "disable"})
    assert text == "setting deduplicate_insert is disable although enable was sent"
    assert "async_insert is unknown" in (NEW.refused({k: v for k, v in effective.items() if k != "async_insert"}) or "")


@pytest.mark.parametrize(
    ("source", "text", "known"),
    [
        ("db.clicks (Replicated OutputStream)", "Block with ID all_1_2 already exists; ignoring it.", True),
        ("db.clicks (7a-b2) (Replicated OutputStream)", "Block with ID all_1_2 already exists locally as part p", True),
        ("db.clicks (7a-b2)", "All rows are deduplicated for part all_0_0_0", True),
        ("db.clicks_view (7a-b2)", "Block with ID all_1_2 already exists locally as part p", False),  # a view has it
        ("db.clicks (7a-b2)", "Wrote block with ID 'all_1_2', 300 rows", False),
    ],
)
def test_only_the_servers_word_about_this_table_is_a_duplicate(source: str, text: str, known: bool) -> None:
    assert reports_duplicate(source, text, "db", "clicks") is known


def test_a_quorum_of_one_is_stated_as_none_whatever_the_users_profile_sets() -> None:
    assert dataclasses.replace(REQUEST, quorum=1).settings(OLD)["insert_quorum"] == 0


def test_the_first_difference_between_headers_is_named() -> None:
    server = (("id", "UInt64"), ("txt", "String"))
    assert difference(server, server) is None
    assert difference(REQUEST.header, server) == "column 2 is text String in the block and txt String on the server"
    assert difference(REQUEST.header, server[:1]) == "the block has 2 columns, the server expects 1"


def test_names_are_quoted_so_that_no_name_ends_the_quotation() -> None:
    assert qualified("db", "a`b") == "`db`.`a\\`b`"
    assert identifiers(["x", "back\\slash"]) == "`x`, `back\\\\slash`"


@pytest.mark.parametrize(("features", "newer"), [(OLD, None), (NEW, "disable")])
def test_without_deduplication_the_server_is_to_store_what_it_remembers(features: Features, newer: str | None) -> None:
    settings = dataclasses.replace(REQUEST, deduplicate=False).settings(features)
    assert settings["insert_deduplicate"] == 0
    assert settings.get("deduplicate_insert") == newer
    assert "insert_deduplication_token" not in settings
    assert settings["insert_quorum"] == 2
