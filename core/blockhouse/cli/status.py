"""`blockhouse status`: what the aggregators of a shard or a pipeline do now, and what stands still."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import aiohttp
import typer
from rich.live import Live

from blockhouse.cli.status_view import Asked, History, render
from blockhouse.cli.tables import Wide, output_console
from blockhouse.config.load import load
from blockhouse.contract.aggregator import STATUS, StatusPage
from blockhouse.contract.base import NotUnderstood
from blockhouse.errors import BlockhouseError

TIMEOUT = 4.0
"""Seconds an aggregator has to answer: a dead one must not keep a person from what the others answer."""
STANDS_STILL, PARTIAL = 1, 3

_HELP = """What aggregators do now: streams with their lag, tables that wait and why, what stands still since when.

ADDRESS is HOST:PORT of an aggregator's admin API, or its URL; give all of a pipeline. With --config the one of that
configuration is asked too, and its token is used for all. Those that do not answer within 4 s are named.

Exit codes: 0 all is well; 1 something stands still, is stopped or waits for a person; 3 nothing does in what is shown,
but an aggregator or a Kafka cluster does not answer. The keys of --json are in docs/lag.md.

Examples:

  blockhouse status --config aggregator.yaml

  blockhouse status events-0:8080 events-1:8080 --token-file token --watch 2
"""


def status(
    address: Annotated[list[str] | None, typer.Argument(help="HOST:PORT or URL of an aggregator's admin API.")] = None,
    config: Annotated[Path | None, typer.Option("--config", "-c", help="YAML configuration of an aggregator.")] = None,
    token_file: Annotated[Path | None, typer.Option(help="File with the token of the admin APIs.")] = None,
    watch: Annotated[float, typer.Option(min=0, help="Show it again every so many seconds, until interrupted.")] = 0.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    wide: Wide = False,
) -> None:
    addresses, token = list(address or ()), ""
    if config is not None:
        admin = load(config).admin
        addresses.insert(0, f"{admin.host}:{admin.port}")
        token = admin.token.read() if admin.token is not None else ""
    if token_file is not None:
        token = _read(token_file)
    if not addresses:
        raise typer.BadParameter("give the address of an aggregator, or --config", param_hint="ADDRESS")
    if watch and not as_json:
        _watch(addresses, token, watch, wide=wide)
        return
    asked = asyncio.run(ask_all(addresses, token))
    if as_json:
        typer.echo(json.dumps({"aggregators": [each.written() for each in asked]}, indent=2))
    else:
        output_console(wide=wide).print(render(asked))
    raise typer.Exit(exit_code(asked))


status.__doc__ = _HELP


def exit_code(asked: Sequence[Asked]) -> int:
    """What a script must know: see the help."""
    if any(each.troubled for each in asked):
        return STANDS_STILL
    silent = any(each.page is None or each.page.cluster_errors for each in asked)
    return PARTIAL if silent else 0


async def ask_all(addresses: Sequence[str], token: str) -> Sequence[Asked]:
    """What each answers, or why it does not; all are asked at once."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    timeout = aiohttp.ClientTimeout(total=TIMEOUT)
    async with aiohttp.ClientSession(headers=headers, timeout=timeout) as session:
        return await asyncio.gather(*(_ask(session, address) for address in addresses))


async def _ask(session: aiohttp.ClientSession, address: str) -> Asked:
    base = address.rstrip("/") if "://" in address else f"http://{address}"
    try:
        async with session.get(base + STATUS.path) as answer:
            if answer.status in (401, 403):
                return Asked(address, None, "it wants a token, or another one: --token-file")
            answer.raise_for_status()
            return Asked(address, StatusPage.parse(await answer.read()), "")
    except TimeoutError:
        return Asked(address, None, f"no answer in {TIMEOUT:g} s")
    except (aiohttp.ClientError, NotUnderstood, ValueError) as error:
        return Asked(address, None, str(error))


def _watch(addresses: Sequence[str], token: str, seconds: float, *, wide: bool) -> None:
    history = History()
    with Live(console=output_console(wide=wide), auto_refresh=False) as live:
        while True:
            asked = asyncio.run(ask_all(addresses, token))
            history.add(asked)
            live.update(render(asked, history), refresh=True)
            time.sleep(seconds)


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8").strip()
    except OSError as error:
        raise BlockhouseError(f"token file {file} cannot be read: {error.strerror}") from error
