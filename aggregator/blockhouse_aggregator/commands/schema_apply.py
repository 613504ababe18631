"""`blockhouse schema apply`: make a table of a shard what its CREATE TABLE statement states, without the operator."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from blockhouse.admin_client import AdminAccess
from blockhouse.config.load import load
from blockhouse.config.pipeline import AggregatorConfig
from blockhouse.errors import Blocked, BlockhouseError, Permanent
from blockhouse.schema.ddl import read_declaration
from blockhouse.streams import StreamId
from blockhouse_aggregator.kafka.coverage import answered
from blockhouse_aggregator.rollout.change import Change, Plan, plan, recorded, strangers
from blockhouse_aggregator.rollout.shard import Aggregators

REFUSED = 2

_HELP = """Make a table of a shard what a CREATE TABLE statement states: create it, or add its columns.

It is created at every replica with the columns and settings that loading needs, and its schema is recorded, so that
`blockhouse schema proto` knows it before the first message. Columns are added while the whole shard holds the table:
messages of it wait in Kafka, other tables are loaded. Nothing else about a table is ever changed.

ADDRESS is HOST:PORT of the admin API of each other aggregator of the shard; the one of --config is asked, too. All that
are members of the consumer groups must be given. Without --yes it only shows what would be done, with the SQL. A
change that was interrupted is completed by running it again.

Exit codes: 0 the table is as stated, or can become so (without --yes); 1 a server did not answer, or a wait was in
vain: run it again; 2 it cannot be done, with the reason.

Examples:

  blockhouse schema apply clicks --ddl clicks.sql --config aggregator.yaml

  blockhouse schema apply clicks events-1:8080 --ddl clicks.sql --config aggregator.yaml --token-file token --yes
"""


def apply(
    table: Annotated[str, typer.Argument(help="`database.table`, or a table of the configured database.")],
    ddl: Annotated[Path, typer.Option(help="File with the CREATE TABLE statement.", exists=True, dir_okay=False)],
    config: Annotated[Path, typer.Option("--config", "-c", help="YAML configuration of an aggregator of the shard.")],
    address: Annotated[list[str] | None, typer.Argument(help="HOST:PORT of the other aggregators' admin APIs.")] = None,
    token_file: Annotated[Path | None, typer.Option(help="File with the token of the admin APIs.")] = None,
    ca_file: Annotated[Path | None, typer.Option(help="Authorities (PEM) to trust; asks by TLS.")] = None,
    timeout: Annotated[float, typer.Option(min=1, help="Seconds that each step may wait.")] = 120.0,
    yes: Annotated[bool, typer.Option("--yes", help="Do it; without this, only show what would be done.")] = False,
) -> None:
    settings = load(config)
    admin = settings.admin
    name = table if "." in table else f"{settings.clickhouse.database}.{table}"
    statement = ddl.read_text()
    addresses = [f"{admin.host}:{admin.port}", *(address or ())]
    aggregators = Aggregators(addresses, AdminAccess(admin, token_file, ca_file))
    try:
        read_declaration(name, statement)
        raise typer.Exit(asyncio.run(_apply(aggregators, settings, name, statement, timeout, yes=yes)))
    except (Blocked, Permanent) as error:
        raise CannotBeDone(str(error), reason=error.reason) from error


apply.__doc__ = _HELP


class CannotBeDone(BlockhouseError):
    """Something has to be corrected first."""

    exit_code = REFUSED


async def _apply(
    aggregators: Aggregators, settings: AggregatorConfig, table: str, ddl: str, timeout: float, *, yes: bool
) -> int:
    async with aggregators:
        kafka = settings.kafka
        groups = {cluster.name: await asyncio.to_thread(answered, cluster, kafka) for cluster in kafka.clusters}
        streams = [str(StreamId(c, kafka.topic, p)) for c, group in groups.items() for p in range(group.partitions)]
        pages = await aggregators.pages()
        if others := strangers(pages, {c: list(group.owned) for c, group in groups.items()}):
            text = f"these aggregators load the shard, too: {', '.join(others)}; give the address of every one"
            raise Blocked(text, reason="AggregatorMissing")
        found = plan(await aggregators.differences(table, ddl))
        unrecorded = found.nothing and not recorded(table, pages)
        for line in _lines(table, found, unrecorded=unrecorded):
            typer.echo(line)
        if found.refused:
            return REFUSED
        if not yes and (unrecorded or not found.nothing):
            typer.echo("Nothing was changed; add --yes to do it.")
        if yes:
            await Change(aggregators, streams, table, ddl, typer.echo, timeout).carry_out(found)
            typer.echo(f"table {table} is as stated, and every aggregator loads it")
    return 0


def _lines(table: str, found: Plan, *, unrecorded: bool) -> Iterator[str]:
    for address, reasons in found.refused.items():
        yield from (f"refused at {address}: {reason}" for reason in reasons)
    for address in found.missing:
        yield f"table {table} is missing at {address}"
    for address, columns in found.lacking.items():
        yield f"table {table} lacks columns at {address}: {', '.join(columns)}"
    for address, statement in _statements(found):
        yield f"at {address}:\n{statement}"
    if found.nothing:
        but = ", but its schema is not recorded: producers cannot know it yet" if unrecorded else ""
        yield f"table {table} is as stated at every replica{but}"


def _statements(found: Plan) -> Iterator[tuple[str, str]]:
    """Each with where it would run: a CREATE at every replica that misses the table, an ALTER at one, for all."""
    yield from ((address, found.statements[address]) for address in found.missing if address in found.statements)
    yield from [(a, found.statements[a]) for a in found.lacking if a in found.statements][:1]
