"""Mirror topics from one Kafka cluster to another by load, see how far it is, and prove that nothing is lost."""

from __future__ import annotations

import asyncio
import json
import time
import warnings
from pathlib import Path
from typing import Annotated, Any

import structlog
import typer

from blockhouse.cli.tables import Wide, output_console, print_table
from blockhouse.config.load import load_as
from blockhouse.config.mirror import MirrorConfig
from blockhouse.errors import BlockhouseError
from blockhouse_mirror.commands.replay import EXAMPLES as REPLAY_EXAMPLES
from blockhouse_mirror.commands.replay import replay

app = typer.Typer(
    help="Mirror topics from one Kafka cluster to another, by load and without loss, and audit what was mirrored.",
    no_args_is_help=True,
)
app.command(epilog=REPLAY_EXAMPLES)(replay)

Config = Annotated[Path, typer.Option("--config", "-c", help="The YAML file of docs/mirror.md.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
STANDS_STILL = 1
TIMEOUT = 5.0


@app.command()
def run(
    config: Config,
    ignore_unknown: Annotated[
        bool, typer.Option("--ignore-unknown", help="Log fields of a newer version instead of refusing them.")
    ] = False,
) -> None:
    """Mirror until SIGTERM, then end cleanly: what is in flight is acknowledged and positions are written.

    Example: blockhouse mirror run --config mirror.yaml

    Exit codes: 0 stopped in order, 2 wrong configuration, 70 the Spark JVM died, 71 an internal error, 73 another
    driver of the same mirror has taken over, or may have: the target has not answered for too long.
    """
    unknown: list[str] = []
    settings = load_as(MirrorConfig, config, unknown.append if ignore_unknown else None)
    warnings.filterwarnings("ignore", message="PySpark does not yet fully support pandas")
    from blockhouse.logs import configure
    from blockhouse_mirror.app import run as run_mirror

    configure(settings.log_format, settings.log_level)
    for field in unknown:
        structlog.get_logger(__name__).warning("config.unknown_field", field=field, file=str(config))
    raise typer.Exit(asyncio.run(run_mirror(settings)))


@app.command()
def status(
    config: Config,
    as_json: AsJson = False,
    watch: Annotated[float, typer.Option(min=0, help="Print again every so many seconds; 0: once.")] = 0,
    wide: Wide = False,
) -> None:
    """Tasks with their loads, partitions that are late or stand still, and what does not work now.

    Exit codes: 0 all is well, 1 a partition is stopped or something does not work.

    Examples:

      blockhouse mirror status --config mirror.yaml

      blockhouse mirror status --config mirror.yaml --json | jq .tasks
    """
    from blockhouse.contract.mirror import STATUS, MirrorStatus
    from blockhouse_mirror.commands.view import show_status

    settings = load_as(MirrorConfig, config)
    while True:
        found = MirrorStatus.parse(_ask(settings, STATUS.method, STATUS.path))
        if as_json:
            typer.echo(json.dumps(found.written(), indent=None if watch else 2))
        else:
            show_status(output_console(wide=wide), found)
        if not watch:
            break
        time.sleep(watch)
    raise typer.Exit(STANDS_STILL if found.errors or any(each.stopped for each in found.partitions) else 0)


@app.command()
def explain(
    config: Config,
    partition: Annotated[str, typer.Argument(help="TOPIC/NUMBER in the source.")],
    as_json: AsJson = False,
) -> None:
    """All about one partition: where it is, who mirrors it, why it waits or stands still, and what it weighs.

    Example: blockhouse mirror explain --config mirror.yaml events-01/3
    """
    from blockhouse.contract.mirror import STATUS, MirrorStatus
    from blockhouse_mirror.commands.view import show_partition

    settings = load_as(MirrorConfig, config)
    topic, _, number = partition.rpartition("/")
    if not topic or not number.isdecimal():
        raise typer.BadParameter(f"{partition!r} is not TOPIC/NUMBER", param_hint="PARTITION")
    found = MirrorStatus.parse(_ask(settings, STATUS.method, STATUS.path))
    one = next((each for each in found.partitions if (each.topic, each.partition) == (topic, int(number))), None)
    if one is None:
        raise BlockhouseError(f"mirror {settings.name} has no partition {partition}; `status --json` lists them all")
    if as_json:
        typer.echo(json.dumps(one.written(), indent=2))
    else:
        show_partition(output_console(), one, found)


@app.command()
def rebalance(config: Config) -> None:
    """Make the tasks even at the next look, whatever the cool-down. Moves no more than the tolerance needs.

    Example: blockhouse mirror rebalance --config mirror.yaml
    """
    from blockhouse.contract.mirror import REBALANCE

    settings = load_as(MirrorConfig, config)
    _ask(settings, REBALANCE.method, REBALANCE.path)
    typer.echo(f"mirror {settings.name}: requested; `blockhouse mirror status` shows what moved")


@app.command()
def audit(config: Config, as_json: AsJson = False, wide: Wide = False) -> None:
    """Compare both clusters record by record, up to the mirror's positions: content, order, once each.

    Records that the source's retention has taken are not judged. It may run beside the mirror.

    Exit codes: 0 exact, 1 records are doubled or out of order, 2 records are missing or changed.

    Examples:

      blockhouse mirror audit --config mirror.yaml

      blockhouse mirror audit --config mirror.yaml --json > audit.jsonl
    """
    from blockhouse_mirror.audit.judge import audit as judge
    from blockhouse_mirror.commands.view import audit_line, audit_table

    settings = load_as(MirrorConfig, config)
    found = []
    for each in judge(settings):
        found.append(each)
        if as_json:
            typer.echo(json.dumps(audit_line(each)))
        else:
            typer.secho(f"{each.topic}/{each.partition}: {each.compared} records", err=True, dim=True)
    exact, lossless = all(each.exact for each in found), all(each.lossless for each in found)
    if not as_json:
        print_table(audit_table(found), wide=wide)
        records = sum(each.compared for each in found)
        typer.echo(f"{records} records of {len(found)} partitions: {'exact' if exact else 'NOT EXACT'}")
    raise typer.Exit(0 if exact else 1 if lossless else 2)


def _ask(settings: MirrorConfig, method: str, path: str) -> Any:
    """The answer of the mirror's admin API. Raises BlockhouseError when there is none."""
    import aiohttp

    from blockhouse.admin_client import AdminAccess
    from blockhouse.http_errors import no_answer

    access, url = AdminAccess(settings.admin), settings.admin.url + path

    async def ask() -> Any:
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(TIMEOUT)) as client,
            client.request(method, url, headers=access.headers, **access.trust(settings.admin.url)) as answer,
        ):
            if answer.status != 200:
                raise BlockhouseError(f"{url} answers {answer.status}: {(await answer.text()).strip()}")
            return await answer.json()

    try:
        return asyncio.run(ask())
    except (aiohttp.ClientError, TimeoutError) as error:
        why = no_answer(error, TIMEOUT)
        raise BlockhouseError(f"mirror {settings.name} cannot be asked at {url}: {why}; does it run?") from None
