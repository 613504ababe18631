"""The page of an aggregator as a person sees it, in a real browser."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from selenium.webdriver.common.by import By

from blockhouse.streams import StreamId
from blockhouse_aggregator.protocol.takeover import Stop
from tests.browser.conftest import Page, Served
from tests.unit.admin.stand_in import CONSUMES, STOPPED, StandIn, owner

MARKUP = "<img src=x onerror=\"document.title='run'\"><b>bold</b>"


def test_it_shows_streams_tables_blocks_and_history_without_internet(page: Page, aggregator: Served) -> None:
    page.open(aggregator.url)
    page.wait_for("Streams")

    assert f"{STOPPED} OffsetsReset the offset was set by a tool" in page.part("Needs a person")
    assert f"{CONSUMES} REPLAY" in page.part("Streams")
    assert str(STOPPED) in page.part("Streams")
    assert f"{CONSUMES} default.t [12, 19] 8" in page.part("Blocks in flight")
    assert "default.t 1" in page.part("Tables")
    assert f"{CONSUMES} " in page.part("Ownership")
    assert "#7 by r2, 2025-11-25T08:00:00Z, at 30: default.t [12, 19]" in page.part("Ownership")
    assert "owned" in page.part("Ownership")
    assert page.complaints() == []


def test_no_request_leaves_where_it_is_from(page: Page, aggregator: Served) -> None:
    page.requested()
    page.open(aggregator.url)
    page.wait_for("Streams")

    asked = page.requested()
    assert {urlsplit(each).path for each in asked} >= {"/", "/status", "/history"}
    assert {f"{urlsplit(each).scheme}://{urlsplit(each).netloc}" for each in asked} == {aggregator.url}


def test_a_table_that_is_held_is_shown_with_its_reason(page: Page, aggregator: Served) -> None:
    catalog = aggregator.aggregator.catalog
    catalog.tables = (replace(catalog.tables[0], unavailable="UnknownTable", why="no such table on the server"),)

    page.open(aggregator.url)
    page.wait_for("Streams")

    assert "default.t 1 UnknownTable no such table on the server" in page.part("Tables")


def test_a_replica_that_takes_no_rows_is_shown(page: Page, aggregator: Served) -> None:
    aggregator.aggregator.unfit = "read-only: default.t"

    page.open(aggregator.url)
    page.wait_for("Streams")

    assert "its ClickHouse takes no rows read-only: default.t" in page.part("Needs a person")
    assert "unfit" in page.wait_for("replica ")


def test_it_follows_what_changes(page: Page, aggregator: Served) -> None:
    page.open(aggregator.url)
    assert "another reason" not in page.wait_for("the offset was set by a tool")

    owners = aggregator.aggregator.owners
    owners[STOPPED] = owner(STOPPED, stop=Stop("LogTruncated", "another reason"))
    shown = page.wait_for("another reason")

    assert "LogTruncated" in shown
    assert "the offset was set by a tool" not in shown


def test_names_and_messages_of_others_are_text(page: Page, aggregator: Served) -> None:
    stream = StreamId("a", MARKUP.replace("/", "|"), 0)
    aggregator.aggregator.owners[stream] = owner(stream, stop=Stop("OffsetsReset", MARKUP))

    page.open(aggregator.url)
    shown = page.wait_for("onerror")

    assert MARKUP in shown
    assert str(stream) in shown
    assert page.count("main img, main b, main script") == 0
    assert page.driver.title == "r1 of " + aggregator.aggregator.config.pipeline


def test_a_narrow_screen_needs_no_scrolling_sideways(page: Page, aggregator: Served) -> None:
    long = StreamId("a", "a-topic-with-a-name-that-is-as-long-as-names-of-topics-may-become", 11)
    aggregator.aggregator.owners[long] = owner(long, stop=Stop("OffsetsReset", "the offset was set by a tool"))
    narrow = {"width": 400, "height": 800, "deviceScaleFactor": 1, "mobile": True}
    page.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", narrow)

    page.open(aggregator.url)
    page.wait_for("Streams")

    assert page.driver.execute_script("return innerWidth") == 400
    assert page.driver.execute_script("return document.documentElement.scrollWidth") == 400
    edges = "[...document.querySelectorAll('td')].map(each => each.getBoundingClientRect()).map(r => [r.left, r.right])"
    boxes = page.driver.execute_script(f"return {edges}")
    assert len(boxes) > 20
    assert max(right for _, right in boxes) <= 400
    assert min(right - left for left, right in boxes) > 300, "words would be cut into letters"


def test_it_states_that_the_aggregator_is_gone_and_what_is_shown_is_old(page: Page, aggregator: Served) -> None:
    page.open(aggregator.url)
    assert "no answer" not in page.wait_for("as of")

    aggregator.stop()
    shown = page.wait_for("no answer")

    assert "what is shown may be out of date" in shown
    assert str(CONSUMES) in shown


def test_it_asks_for_the_token_and_shows_nothing_before(page: Page, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("a secret")
    locked = Served(StandIn(), file)
    try:
        page.open(locked.url)
        assert str(CONSUMES) not in page.wait_for("asks for a token")
        page.driver.find_element(By.ID, "value").send_keys("a secret\n")
        assert str(CONSUMES) in page.wait_for("Streams")
    finally:
        locked.stop()


@pytest.mark.parametrize("mode", ["cors", "no-cors"])
def test_a_page_of_another_site_reads_nothing(page: Page, aggregator: Served, mode: str) -> None:
    other = Served(StandIn())
    try:
        page.open(other.url)
        page.wait_for("Streams")
        page.driver.execute_cdp_cmd("Page.setBypassCSP", {"enabled": True})
        page.open(other.url)
        answer = page.driver.execute_async_script(
            "const [url, mode, done] = arguments;"
            "fetch(url, {mode}).then(found => found.text()).then(text => done(text), error => done(String(error)))",
            aggregator.url + "/status",
            mode,
        )
    finally:
        page.driver.execute_cdp_cmd("Page.setBypassCSP", {"enabled": False})
        other.stop()
    assert str(CONSUMES) not in answer


def test_a_name_of_a_stranger_that_leads_here_reads_nothing(page: Page, aggregator: Served) -> None:
    """DNS rebinding: to the browser it is one site."""
    port = urlsplit(aggregator.url).port
    page.open(f"http://rebound.example:{port}/")
    shown = page.wait_for("no answer")

    assert "403" in shown
    assert str(CONSUMES) not in shown
    page.open(f"http://rebound.example:{port}/status")
    assert "use 127.0.0.1 or localhost" in page.wait_for("rebound.example")
