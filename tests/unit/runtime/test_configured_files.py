"""Files that vanish under a running aggregator: what two looks in a row find counts, and what comes back at once."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from blockhouse.config.load import parse
from blockhouse_aggregator.runtime.process import configured_files
from blockhouse_aggregator.runtime.process.configured_files import ConfiguredFiles

TEXT = """
pipeline: p
shard: "01"
replica: r1
kafka: {topic: t, group: g, clusters: [{name: a, bootstrapServers: "k:1"}]}
zookeeper: {servers: "z:1"}
"""
WITH_A_SECRET = TEXT + "clickhouse: {password: {file: /nowhere}}\n"


@pytest.mark.parametrize(
    ("looks", "reported"),
    [
        (["", ""], []),
        (["gone", "", "gone", ""], []),
        (["gone", "gone", "gone", "", ""], ["gone", ""]),
        (["", "gone", "another", "", "gone", "gone"], ["another", "", "gone"]),
    ],
)
async def test_only_what_is_missing_at_two_looks_in_a_row_is_reported_and_once(
    monkeypatch: pytest.MonkeyPatch, looks: Sequence[str], reported: Sequence[str]
) -> None:
    left, over = iter(looks), asyncio.Event()

    def look(_: object) -> str:
        found = next(left, None)
        if found is None:
            asyncio.get_running_loop().call_soon(over.set)
        return looks[-1] if found is None else found

    async def inline(function: object, *arguments: object) -> str:
        await asyncio.sleep(0)
        assert callable(function)
        return str(function(*arguments))

    monkeypatch.setattr(configured_files, "PERIOD", 0)
    monkeypatch.setattr(configured_files, "unreadable", look)
    monkeypatch.setattr(configured_files.asyncio, "to_thread", inline)
    watched, found = ConfiguredFiles(parse(WITH_A_SECRET)), []

    async def changed(missing: bool) -> None:
        assert missing is bool(watched.problem)
        found.append(watched.problem)

    watching = asyncio.create_task(watched.watch(changed))
    await asyncio.wait_for(over.wait(), 60)
    watching.cancel()

    assert found == reported


async def test_a_configuration_without_files_is_not_watched() -> None:
    async def changed(_: bool) -> None:
        raise AssertionError("nothing can change")

    await asyncio.wait_for(ConfiguredFiles(parse(TEXT)).watch(changed), 60)
