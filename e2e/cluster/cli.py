"""`blockhouse cluster`: start, show and stop a real Kubernetes of fake nodes on this machine.

The programs outlive the command. Everything `status` and `down` need is in the folder, so they also work after the
command that started them was killed.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from e2e.cluster.cluster import Cluster, read_state
from e2e.cluster.spec import ClusterSpec, Zone
from e2e.stack.listing import show

NOT_RUNNING = 3
"""Exit code of `status` unless every program answers, as service managers have it."""

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="rich",
    help="A real Kubernetes API on this machine: nodes are played by KWOK, nothing runs in the pods.",
)
out = Console()

Folder = Annotated[Path, typer.Option(help="Where the programs keep data, logs and the record of what runs.")]
DEFAULT_FOLDER = Path(".run/cluster")


@app.command(
    epilog="Examples:\n\n"
    "  blockhouse cluster up\n\n"
    "  blockhouse cluster up --zone dc-a=3 --zone dc-b=3 --folder /tmp/big\n\n"
    "  export KUBECONFIG=$PWD/.run/cluster/admin.kubeconfig"
)
def up(
    folder: Folder = DEFAULT_FOLDER,
    zone: Annotated[
        list[str] | None, typer.Option(help="NAME=NODES, repeatable. Default: dc-a=2 and dc-b=2.", metavar="NAME=NODES")
    ] = None,
) -> None:
    """Start the programs and leave them running. Exit code 1 when one does not come up."""
    requested = ClusterSpec(zones=tuple(parse_zone(text) for text in zone)) if zone else None
    cluster = Cluster(folder, requested or (None if read_state(folder.absolute()) else ClusterSpec()), detached=True)
    cluster.keep = True
    began = time.monotonic()
    try:
        with out.status(f"starting {len(cluster.servers)} programs in {folder}"):
            cluster.start(lambda s: out.print(f"{s.name} answers after {time.monotonic() - began:.1f} s"))
    except BaseException:
        cluster.stop()
        raise
    _show(cluster)
    for line in (
        f"export PATH={cluster.binaries.folder}:$PATH KUBECONFIG={cluster.kubeconfig}",
        f"blockhouse cluster down --folder {cluster.folder}",
    ):
        out.print(line, markup=False, highlight=False, soft_wrap=True)


@app.command(epilog="Example:\n\n  blockhouse cluster status || blockhouse cluster up")
def status(folder: Folder = DEFAULT_FOLDER) -> None:
    """Show what runs where. Exit code 0 when every program answers, 3 otherwise, 1 when there is no cluster."""
    if not _show(Cluster.attach(folder)):
        raise typer.Exit(NOT_RUNNING)


@app.command(epilog="Examples:\n\n  blockhouse cluster down\n\n  blockhouse cluster down --keep-data")
def down(
    folder: Folder = DEFAULT_FOLDER,
    keep_data: Annotated[
        bool, typer.Option("--keep-data", help="Keep data, logs and ports for the next `up`.")
    ] = False,
) -> None:
    """Stop the programs and remove their data. Exit code 1 when there is no cluster."""
    cluster = Cluster.attach(folder)
    with out.status(f"stopping {len(cluster.servers)} programs"):
        cluster.keep = keep_data
        cluster.close()
    out.print(f"{len(cluster.servers)} programs stopped; data {'kept in' if keep_data else 'removed from'} {folder}")


def parse_zone(text: str) -> Zone:
    """ "dc-a=3" as a zone; BadParameter for anything else."""
    name, _, nodes = text.partition("=")
    if not name or not nodes.isdigit():
        raise typer.BadParameter(f"{text!r} is not NAME=NODES, e.g. dc-a=3")
    return Zone(name, int(nodes))


def _show(cluster: Cluster) -> bool:
    return show(out, cluster.folder, "program", cluster.servers.values())
