"""`blockhouse status`: what the aggregators of a shard or a pipeline do now, and what stands still."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from importlib.metadata import entry_points
from pathlib import Path
from typing import Annotated, Any

import aiohttp
import typer
from rich.live import Live

from blockhouse.admin_client import AdminAccess
from blockhouse.cli.extras import how_to_install
from blockhouse.cli.status_view import Asked, Found, History, render
from blockhouse.cli.tables import Wide, output_console
from blockhouse.config.load import load
from blockhouse.contract.aggregator import STATUS, StatusPage
from blockhouse.contract.base import NotUnderstood
from blockhouse.errors import BlockhouseError
from blockhouse.http_errors import no_answer

TIMEOUT = 4.0
"""Seconds an aggregator has to answer: a dead one must not keep a person from what the others answer."""
STANDS_STILL, PARTIAL = 1, 3
Source = Callable[[str, str, str | None, str | None, float], Coroutine[Any, Any, Found]]
"""By name, namespace, kubeconfig, context and the seconds that each aggregator has to answer."""

_HELP = """What aggregators do now: streams with their lag, tables that wait and why, what stands still since when.

ADDRESS is HOST:PORT of an aggregator's admin API, or its URL; give all of a pipeline. With --config the one of that
configuration is asked too, and its token is used for all. With --pipeline the resources and all aggregators of a
pipeline in Kubernetes are, by your kubeconfig. Those that do not answer within 4 s are named.

Exit codes: 0 all is well; 1 something stands still, is stopped, not ready or waits for a person; 3 nothing does in what
is shown, but an aggregator or a Kafka cluster does not answer, or streams have no owner among those asked. The keys of
--json are in docs/lag.md.

Examples:

  blockhouse status --config aggregator.yaml

  blockhouse status --pipeline events --namespace ingest

  blockhouse status events-0:8080 events-1:8080 --token-file token --watch 2
"""


def status(
    address: Annotated[list[str] | None, typer.Argument(help="HOST:PORT or URL of an aggregator's admin API.")] = None,
    config: Annotated[Path | None, typer.Option("--config", "-c", help="YAML configuration of an aggregator.")] = None,
    token_file: Annotated[Path | None, typer.Option(help="File with the token of the admin APIs.")] = None,
    ca_file: Annotated[Path | None, typer.Option(help="Authorities (PEM) to trust; asks by TLS.")] = None,
    pipeline: Annotated[str, typer.Option(help="BlockAggregator in Kubernetes: all of its aggregators.")] = "",
    namespace: Annotated[str, typer.Option("--namespace", "-n", help="Its namespace.")] = "default",
    kubeconfig: Annotated[str, typer.Option(help="Way to its API server; without, the pod's own, or ~/.kube.")] = "",
    context: Annotated[str, typer.Option(help="Context of the kubeconfig.")] = "",
    watch: Annotated[float, typer.Option(min=0, help="Show it again every so many seconds, until interrupted.")] = 0.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    wide: Wide = False,
) -> None:
    if pipeline:
        if address or config is not None:
            raise typer.BadParameter("give either --pipeline, or addresses and --config", param_hint="--pipeline")
        source = _source()
        ask = partial(source, pipeline, namespace, kubeconfig or None, context or None, TIMEOUT)
    else:
        ask = partial(_ask_addresses, *_addresses(address or (), config, token_file, ca_file))
    if watch and not as_json:
        _watch(ask, watch, wide=wide)
        return
    found = asyncio.run(ask())
    if as_json:
        typer.echo(json.dumps(found.written(), indent=2))
    else:
        output_console(wide=wide).print(render(found))
    raise typer.Exit(exit_code(found))


status.__doc__ = _HELP


def _source() -> Source:
    """What finds a pipeline in Kubernetes."""
    (entry,) = entry_points(group="blockhouse.status_sources", name="kubernetes")
    try:
        source: Source = entry.load()
    except ModuleNotFoundError as error:
        raise BlockhouseError(f"--pipeline needs a client of Kubernetes: {how_to_install('operator')}") from error
    return source


def _addresses(
    given: Sequence[str], config: Path | None, token_file: Path | None, ca_file: Path | None
) -> tuple[Sequence[str], AdminAccess]:
    """The addresses to ask, and how."""
    own = load(config).admin if config is not None else None
    addresses = [f"{own.host}:{own.port}", *given] if own is not None else list(given)
    if not addresses:
        raise typer.BadParameter("give the address of an aggregator, or --config", param_hint="ADDRESS")
    return addresses, AdminAccess(own, token_file, ca_file)


def exit_code(found: Found) -> int:
    """What a script must know: see the help."""
    if any(each.troubled for each in found.asked) or any(each.ready.status == "False" for each in found.resources):
        return STANDS_STILL
    silent = any(each.page is None or each.page.cluster_errors for each in found.asked)
    return PARTIAL if silent or found.unowned else 0


async def _ask_addresses(addresses: Sequence[str], access: AdminAccess) -> Found:
    return Found(await ask_all(addresses, access))


async def ask_all(addresses: Sequence[str], access: AdminAccess) -> Sequence[Asked]:
    """What each answers, or why it does not; all are asked at once."""
    timeout = aiohttp.ClientTimeout(total=TIMEOUT)
    async with aiohttp.ClientSession(headers=access.headers, timeout=timeout) as session:
        return await asyncio.gather(*(_ask(session, address, access) for address in addresses))


async def _ask(session: aiohttp.ClientSession, address: str, access: AdminAccess) -> Asked:
    try:
        async with session.get(access.url(address) + STATUS.path, **access.trust(address)) as answer:
            if answer.status == 401:
                return Asked(address, None, "it wants a token, or another one: --token-file")
            if answer.status == 403:
                return Asked(address, None, (await answer.text()).strip())
            if answer.status != 200:
                return Asked(address, None, f"it answers {answer.status} {answer.reason}")
            return Asked(address, StatusPage.parse(await answer.read()), "")
    except (aiohttp.ClientError, TimeoutError, NotUnderstood, ValueError) as error:
        return Asked(address, None, no_answer(error, TIMEOUT))


def _watch(ask: Callable[[], Coroutine[Any, Any, Found]], seconds: float, *, wide: bool) -> None:
    history = History()
    with Live(console=output_console(wide=wide), auto_refresh=False) as live:
        while True:
            found = asyncio.run(ask())
            history.add(found.asked)
            live.update(render(found, history), refresh=True)
            time.sleep(seconds)
