"""`blockhouse stack`: start, show and stop real ZooKeeper, Kafka and ClickHouse servers on this machine.

The servers outlive the command. Everything `status` and `down` need is in the folder, so they also work after the
command that started the servers was killed.
"""

from __future__ import annotations

import shlex
import shutil
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from e2e.clickhouse_choice import ClickHouseOption
from e2e.stack.clickhouse import ClickHouseServer
from e2e.stack.kafka import KafkaBroker
from e2e.stack.listing import show
from e2e.stack.server import Server
from e2e.stack.spec import StackSpec
from e2e.stack.stack import Stack, read_state
from e2e.stack.zookeeper import ZooKeeperServer

NOT_RUNNING = 3
"""Exit code of `status` unless every server answers, as service managers have it."""

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="rich",
    help="Real ZooKeeper, Kafka and ClickHouse servers on this machine, for trying things out.",
)
out = Console()

Folder = Annotated[Path, typer.Option(help="Where the servers keep data, logs and the record of what runs.")]
DEFAULT_FOLDER = Path(".run/stack")


@app.command(
    epilog="Examples:\n\n"
    "  blockhouse stack up\n\n"
    "  blockhouse stack up --shards 2 --replicas 2 --kafka 2 --brokers 3 --folder /tmp/big\n\n"
    "  blockhouse stack up --clickhouse 18.16"
)
def up(
    folder: Folder = DEFAULT_FOLDER,
    kafka: Annotated[int | None, typer.Option(min=1, max=26, help="Independent Kafka clusters a, b ... [2]")] = None,
    brokers: Annotated[int | None, typer.Option(min=1, help="Brokers of each Kafka cluster [1]")] = None,
    shards: Annotated[int | None, typer.Option(min=1, help="ClickHouse shards [1]")] = None,
    replicas: Annotated[int | None, typer.Option(min=1, help="Replicas of each shard [2]")] = None,
    clickhouse: ClickHouseOption = None,
) -> None:
    """Start the servers, or those of them that do not run, and print where they are.

    In a folder that holds a stack already, sizes and version are those it was started with.
        Exit code 1 when one does not come up: the end of its log is printed, and the others are stopped again.
    """
    sizes = {"kafka_clusters": kafka, "brokers": brokers, "shards": shards, "replicas": replicas}
    options = {**sizes, "clickhouse": clickhouse}
    given: dict[str, Any] = {name: value for name, value in options.items() if value is not None}
    recorded, _ = read_state(folder) or (StackSpec(), {})
    stack = Stack(folder, replace(recorded, **given), keep=True, detached=True)
    began = time.monotonic()
    try:
        with out.status(f"starting {len(stack.servers)} servers in {folder}"):
            stack.start(lambda server: out.print(f"{server.name} answers after {time.monotonic() - began:.1f} s"))
    except BaseException:
        stack.stop()
        raise
    _show(stack)
    _show_commands(stack)


@app.command(epilog="Example:\n\n  blockhouse stack status --folder /tmp/big || blockhouse stack up --folder /tmp/big")
def status(folder: Folder = DEFAULT_FOLDER) -> None:
    """Show what runs where. Exit code 0 when every server answers, 3 otherwise, 1 when there is no stack."""
    stack = Stack.attach(folder)
    if not _show(stack):
        raise typer.Exit(NOT_RUNNING)


@app.command(epilog="Examples:\n\n  blockhouse stack down\n\n  blockhouse stack down --keep-data")
def down(
    folder: Folder = DEFAULT_FOLDER,
    keep_data: Annotated[
        bool, typer.Option("--keep-data", help="Keep data, logs and ports for the next `up`.")
    ] = False,
) -> None:
    """Stop the servers and remove their data. Exit code 1 when there is no stack."""
    stack = Stack.attach(folder)
    with out.status(f"stopping {len(stack.servers)} servers"):
        stack.keep = keep_data
        stack.close()
    out.print(f"{len(stack.servers)} servers stopped; data {'kept in' if keep_data else 'removed from'} {folder}")


def _show(stack: Stack) -> bool:
    return show(out, stack.folder, "server", stack.servers.values(), _address)


def _address(server: Server) -> str:
    match server:
        case ZooKeeperServer():
            return server.connect
        case KafkaBroker():
            return server.bootstrap
        case ClickHouseServer():
            return f"{server.host}:{server.port}, http {server.http_port}{_version(server)}"
        case _:  # open: servers that other packages add
            return ""


def _version(server: ClickHouseServer) -> str:
    try:
        return f", version {server.version}" if server.alive and not server.frozen else ""
    except OSError:  # it starts, or was stopped meanwhile
        return ""


def _own_command() -> str:
    """What a shell finds as this program: an installed package of the same name lacks these commands."""
    found, own = shutil.which("blockhouse"), Path(sys.argv[0]).absolute()
    return "blockhouse" if found and Path(found).samefile(own) else shlex.quote(str(own))


def _show_commands(stack: Stack) -> None:
    """Commands to paste, one kind of server each."""
    lines = [
        f"clickhouse-client --host {server.host} --port {server.port}  # shard {server.shard} {server.replica}"
        for server in stack.clickhouse.values()
    ]
    lines += [f"export KAFKA_{name.upper()}={cluster.bootstrap}" for name, cluster in stack.kafka.items()]
    lines.append(f"/usr/share/zookeeper/bin/zkCli.sh -server {stack.zookeeper.connect}")
    lines.append(f"{_own_command()} stack down --folder {shlex.quote(str(stack.folder.absolute()))}")
    for line in lines:
        out.print(line, markup=False, highlight=False, soft_wrap=True)
