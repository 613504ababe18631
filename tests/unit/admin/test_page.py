"""The page for people: whole, from one file, and allowed nothing but to ask the program that it is from."""

from __future__ import annotations

import base64
import hashlib
import re
from pathlib import Path

import aiohttp
import pytest

from blockhouse.contract.aggregator import (
    BlockInFlight,
    LaggingTable,
    Standing,
    StatusPage,
    StopReason,
    StreamStatus,
    TableStatus,
)
from blockhouse.contract.diagnosis import Ownership
from blockhouse.contract.notices import Hazard
from tests.unit.admin.stand_in import StandIn, served


async def page(token_file: Path | None = None) -> tuple[int, str, dict[str, str]]:
    async with served(StandIn(), token_file) as url, aiohttp.ClientSession() as client, client.get(url + "/") as answer:
        return answer.status, await answer.text(), dict(answer.headers)


@pytest.fixture
def token(tmp_path: Path) -> Path:
    file = tmp_path / "token"
    file.write_text("secret")
    return file


async def test_its_policy_allows_its_own_script_and_style_by_their_hashes_and_nothing_else() -> None:
    status, text, headers = await page()
    policy = dict(part.strip().split(" ", 1) for part in headers["Content-Security-Policy"].split(";"))
    assert (status, headers["Content-Type"]) == (200, "text/html; charset=utf-8")
    for kind in ("script", "style"):
        (content,) = re.findall(rf"<{kind}>(.*?)</{kind}>", text, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert policy.pop(f"{kind}-src") == f"'sha256-{digest}'"
    assert policy.pop("connect-src") == "'self'"
    assert set(policy) == {"default-src", "base-uri", "form-action", "frame-ancestors"}
    assert set(policy.values()) == {"'none'"}


async def test_it_takes_nothing_from_elsewhere_and_writes_values_as_text_alone() -> None:
    _, text, _ = await page()
    assert not re.findall(r"https?://|<link|<img|@import|\bsrc=", text)
    assert not re.findall(r"innerHTML|outerHTML|insertAdjacent|document\.write|eval\(|\bon\w+=", text)


async def test_without_a_token_it_is_served_and_holds_no_data(token: Path) -> None:
    status, text, _ = await page(token)
    assert status == 200
    assert "default.t" not in text
    assert "events" not in text


async def test_every_key_that_it_reads_is_one_of_the_contract() -> None:
    """Another one would be shown as unknown, always."""
    _, text, _ = await page()
    kinds = (
        StatusPage,
        StreamStatus,
        TableStatus,
        Hazard,
        LaggingTable,
        Standing,
        StopReason,
        BlockInFlight,
        Ownership,
    )
    known = {field.alias or name for kind in kinds for name, field in kind.model_fields.items()}
    read = set(re.findall(r"\b(?:page|stream|table|block|stopped|standing)\.(\w+)", text))
    assert len(read) > 20
    assert read <= known
