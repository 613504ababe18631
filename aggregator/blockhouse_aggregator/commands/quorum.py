"""Show which tables' quorum does not clear and why, and clear what is provably lost.

It decides nothing: `stuck.py` does; and without --yes it changes nothing.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from blockhouse.cli.tables import print_table
from blockhouse.config.endpoints import ClickHouse
from blockhouse.config.load import load
from blockhouse.config.pipeline import AggregatorConfig
from blockhouse.errors import Permanent, Retryable
from blockhouse_aggregator.clickhouse.client import Replica
from blockhouse_aggregator.clickhouse.names import qualified
from blockhouse_aggregator.clickhouse.quorum_nodes import abandon, read_quorum
from blockhouse_aggregator.clickhouse.stuck import (
    Abandon,
    Finding,
    PendingPart,
    QuorumState,
    Remedy,
    RestartReplica,
    StartFetches,
    diagnose,
)
from blockhouse_aggregator.clickhouse.tables import replicated_tables
from blockhouse_aggregator.coordination.session import Session

app = typer.Typer(
    no_args_is_help=True, help="Quorums that do not clear (error 286): what is stuck, why, and a way out."
)

REFUSED = 3
_POLL = 0.5

Config = Annotated[Path, typer.Option("--config", "-c", help="YAML configuration of an aggregator of the shard.")]
Chroot = Annotated[str, typer.Option(help="<root> in the <zookeeper> section of ClickHouse's own configuration.")]
Addresses = Annotated[
    list[str] | None,
    typer.Option("--replica", help="NAME=HOST:PORT, where it differs from what the replica wrote into ZooKeeper."),
]


@dataclass(frozen=True, slots=True)
class Examined:
    """A table, its quorum and what is to be reported about it. `reasons` is, by replica, why its queue does not
    move."""

    table: str
    state: QuorumState
    findings: tuple[Finding, ...]
    reasons: Mapping[str, str]

    @property
    def stuck(self) -> bool:
        return any(finding.stuck for finding in self.findings)

    def to_json(self) -> dict[str, object]:
        return {
            "table": self.table,
            "replicas": {r.name: {"active": r.active, "queue": r.queue_length} for r in self.state.replicas},
            "failedParts": len(self.state.failed),
            "pending": [
                {
                    "part": f.part.name,
                    "cause": f.cause.value,
                    "text": f.text,
                    "repairable": f.remedy is not None,
                    "stuck": f.stuck,
                }
                for f in self.findings
            ],
            "reasons": dict(self.reasons),
        }


@app.command()
def inspect(
    config: Config,
    table: Annotated[list[str] | None, typer.Argument(help="database.table; default: every replicated table.")] = None,
    chroot: Chroot = "",
    address: Addresses = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Which parts wait for their quorum, since when and why. Reads only.

    Take the configuration of an aggregator whose ClickHouse is up. Exit code 0: nothing is stuck; 1: something is.

    Example: blockhouse quorum inspect --config aggregator.yaml
    """
    settings = load(config)
    with Session(settings.zookeeper) as session, Replica(settings.clickhouse) as local:
        paths = _paths(local, table or ())
        found = [_examine(settings, session, name, chroot + path, address) for name, path in paths.items()]
    if as_json:
        typer.echo(json.dumps([each.to_json() for each in found], indent=2))
    else:
        _print(found)
    if any(each.stuck for each in found):
        raise typer.Exit(1)


@app.command()
def repair(
    table: Annotated[str, typer.Argument(help="database.table")],
    config: Config,
    chroot: Chroot = "",
    address: Addresses = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do it; without this, only show what would be done.")] = False,
    wait: Annotated[float, typer.Option(min=0, help="Seconds to wait until the quorum is clear.")] = 60,
) -> None:
    """Clear the quorum of a table where that can lose nothing; refuse, with the reason, where it could.

    Rows of a part that is abandoned were never acknowledged: aggregators send them again. Exit code 0: done, or nothing
    to do; 3: refused, or not clear after --wait seconds.

    Examples:

      blockhouse quorum repair db.clicks --config aggregator.yaml

      blockhouse quorum repair db.clicks --config aggregator.yaml --yes
    """
    settings = load(config)
    with Session(settings.zookeeper) as session, Replica(settings.clickhouse) as local:
        path = chroot + _paths(local, [table])[table]
        found = _examine(settings, session, table, path, address)
        if not found.findings:
            typer.echo(f"{table}: no part waits for its quorum: nothing to do.")
            return
        _print([found])
        refused = [finding for finding in found.findings if finding.remedy is None]
        for finding in refused:
            typer.echo(f"{table}, part {finding.part.name}: refused: {finding.text}")
        for finding in found.findings:
            if finding.remedy is not None:
                typer.echo(f"{table}, part {finding.part.name}: {_words(finding.part, finding.remedy)}")
                if yes:
                    _carry_out(settings, session, found, finding.part, finding.remedy, address)
        if refused:
            raise typer.Exit(REFUSED)
        if not yes:
            typer.echo("Nothing was changed; add --yes to do it.")
            return
        _wait_clear(session, path, found, wait)
    typer.echo(f"{table}: no part waits for its quorum any more.")


def _paths(local: Replica, requested: Sequence[str]) -> dict[str, str]:
    """ZooKeeper paths by `database.table`, as the local replica has them."""
    known = replicated_tables(local)
    if missing := [name for name in requested if name not in known]:
        raise typer.BadParameter(f"{local.name} has no replicated table {', '.join(missing)}", param_hint="TABLE")
    return {name: known[name] for name in (requested or sorted(known))}


def _examine(
    settings: AggregatorConfig, session: Session, table: str, path: str, address: Sequence[str] | None
) -> Examined:
    state = read_quorum(session.znodes, path)
    findings = diagnose(state, time.time_ns() // 1_000_000, settings.quorum.timeout)
    asking = [r.name for r in state.replicas if r.active and r.queued]
    reasons = {name: _reason(settings, state, name, table, address) for name in asking}
    return Examined(table, state, findings, reasons)


def _reason(
    settings: AggregatorConfig, state: QuorumState, name: str, table: str, address: Sequence[str] | None
) -> str:
    """What the replica itself reports of the entries that fetch the pending parts; also when it cannot be asked."""
    database, _, short = table.partition(".")
    parts = tuple(part.name for part in state.pending)
    try:
        with _replica(settings, state, name, address) as replica:
            rows = replica.query(
                "SELECT num_tries, last_exception, postpone_reason FROM system.replication_queue"
                " WHERE database = %(database)s AND table = %(table)s AND new_part_name IN %(parts)s",
                {"database": database, "table": short, "parts": parts},
            )
    except (Retryable, Permanent) as error:
        return f"cannot be asked: {error}"
    reported = [
        f"{tries} tries, {(failed or postponed or 'no reason given').splitlines()[0]}"
        for tries, failed, postponed in rows
    ]
    return "; ".join(reported) or "its queue in memory has no such entry"


def _replica(settings: AggregatorConfig, state: QuorumState, name: str, address: Sequence[str] | None) -> Replica:
    given = dict(text.split("=", 1) for text in address or () if "=" in text)
    known = {replica.name: replica.address for replica in state.replicas}[name]
    if name in given:
        host, _, port = given[name].rpartition(":")
        known = host, int(port)
    if known is None:
        raise Permanent(f"replica {name} did not write its address into ZooKeeper: give --replica {name}=HOST:PORT",
                        reason="UnknownAddress")  # fmt: skip
    config: ClickHouse = settings.clickhouse.model_copy(update={"host": known[0], "port": known[1]})
    return Replica(config)


def _words(part: PendingPart, remedy: Remedy) -> str:
    match remedy:
        case StartFetches(replicas):
            return f"SYSTEM START FETCHES on {', '.join(replicas)}, which gives the part up"
        case RestartReplica(replica):
            return f"SYSTEM RESTART REPLICA on {replica}, which reports the part"
        case Abandon():
            return f"give it up: remove {part.path} and {len(part.blocks)} hashes, record it in quorum/failed_parts"


def _carry_out(
    settings: AggregatorConfig,
    session: Session,
    found: Examined,
    part: PendingPart,
    remedy: Remedy,
    address: Sequence[str] | None,
) -> None:
    table = qualified(*found.table.split(".", 1))
    match remedy:
        case StartFetches(replicas):
            for name in replicas:
                with _replica(settings, found.state, name, address) as replica:
                    replica.query(f"SYSTEM START FETCHES {table}")
        case RestartReplica(name):
            with _replica(settings, found.state, name, address) as replica:
                replica.query(f"SYSTEM RESTART REPLICA {table}")
        case Abandon():
            abandon(session.znodes, found.state, part)


def _wait_clear(session: Session, path: str, found: Examined, seconds: float) -> None:
    """Until none of the parts waits that waited before; others may, for the table is in use again."""
    before = {part.name for part in found.state.pending}
    deadline = time.monotonic() + seconds
    while before & {part.name for part in read_quorum(session.znodes, path).pending}:
        if time.monotonic() > deadline:
            typer.echo(f"{found.table}: still not clear after {seconds:g} s: inspect it again", err=True)
            raise typer.Exit(REFUSED)
        time.sleep(_POLL)


def _print(found: Sequence[Examined]) -> None:
    table = Table("table", "part", "cause", "since", "queues", "why")
    for each in found:
        queues = ", ".join(
            f"{r.name} {r.queue_length}{'' if r.active else ' (unavailable)'}" for r in each.state.replicas
        )
        if not each.findings:
            table.add_row(each.table, "", "clear", "", queues, "")
        for finding in each.findings:
            since = time.strftime("%F %T", time.localtime(finding.part.since_ms / 1000))
            style = "red" if finding.stuck else None
            table.add_row(each.table, finding.part.name, finding.cause, since, queues, finding.text, style=style)
    print_table(table)
    for each in found:
        for replica, reason in each.reasons.items():
            typer.echo(f"{each.table}: {replica}: {reason}")
