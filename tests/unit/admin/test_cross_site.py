"""Without a token, no page of another site is answered: by a name of its own, or from where it is."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import aiohttp
import pytest

from blockhouse.cross_site import refusal
from tests.unit.admin.stand_in import StandIn, served

SAFE: tuple[Mapping[str, str], ...] = (
    {},
    {"Host": "127.0.0.1:8080"},
    {"Host": "LOCALHOST:9"},
    {"Host": "localhost"},
    {"Host": "[::1]:8080", "Origin": "http://[::1]:8080", "Sec-Fetch-Site": "same-origin"},
    {"Host": "10.1.2.3:8080"},
    {"Host": "127.0.0.1:8080", "Sec-Fetch-Site": "none"},
)
REFUSED: tuple[tuple[Mapping[str, str], str], ...] = (
    ({"Host": "rebound.example:8080"}, "use 127.0.0.1 or localhost, or set a token"),
    ({"Host": "rebound.example", "Origin": "http://rebound.example", "Sec-Fetch-Site": "same-origin"}, "rebound"),
    ({"Host": "localhost.example:8080"}, "localhost.example"),
    ({"Host": "127.0.0.1.example:8080"}, "127.0.0.1.example"),
    ({"Host": "127.0.0.1@rebound.example:8080"}, "rebound.example"),
    ({"Host": "[::1"}, "host"),
    ({"Host": "127.0.0.1:8080", "Origin": "http://other.example"}, "a page of http://other.example"),
    ({"Host": "127.0.0.1:8080", "Origin": "http://127.0.0.1:3000"}, "a page of http://127.0.0.1:3000"),
    ({"Host": "127.0.0.1:8080", "Origin": "null"}, "a page of null"),
    ({"Host": "127.0.0.1:8080", "Sec-Fetch-Site": "cross-site"}, "another site"),
    ({"Host": "127.0.0.1:8080", "Sec-Fetch-Site": "same-site"}, "another site"),
)


@pytest.mark.parametrize("headers", SAFE)
def test_programs_and_the_page_itself_are_answered(headers: Mapping[str, str]) -> None:
    assert refusal(headers) == ""


@pytest.mark.parametrize(("headers", "why"), REFUSED)
def test_a_page_of_another_site_is_not(headers: Mapping[str, str], why: str) -> None:
    assert why in refusal(headers)


async def asked(path: str, headers: Mapping[str, str], token_file: Path | None = None) -> tuple[int, str]:
    async with (
        served(StandIn(), token_file) as url,
        aiohttp.ClientSession() as client,
        client.get(url + path, headers=headers) as answer,
    ):
        return answer.status, await answer.text()


@pytest.mark.parametrize("path", ["/status", "/history", "/metrics", "/threads", "/drain", "/log-level", "/readyz"])
async def test_everything_that_shows_anything_is_refused(path: str) -> None:
    for headers, why in REFUSED[:2] + REFUSED[6:7] + REFUSED[9:10]:
        status, text = await asked(path, headers)
        assert (status, why in text) == (403, True)
    assert (await asked(path, {}))[0] == 200


async def test_nothing_is_changed_for_another_site_either() -> None:
    aggregator, body = StandIn(), '{"by": "ann", "why": "a page of hers was open"}'
    for headers, status, drained in (({"Origin": "http://other.example"}, 403, False), ({}, 200, True)):
        async with (
            served(aggregator) as url,
            aiohttp.ClientSession() as client,
            client.put(url + "/drain", data=body, headers=headers) as answer,
        ):
            assert answer.status == status
        assert (aggregator.fakes.drain is not None) is drained


async def test_the_page_which_has_no_data_is_served_under_any_name() -> None:
    assert (await asked("/", {"Host": "alias.example", "Sec-Fetch-Site": "cross-site"}))[0] == 200


async def test_with_a_token_a_name_of_any_kind_is_answered(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("secret")
    headers = {"Host": "events-0.example", "Authorization": "Bearer secret"}
    assert (await asked("/status", headers, file))[0] == 200
