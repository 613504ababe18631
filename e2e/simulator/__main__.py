"""`python -m e2e.simulator --kubeconfig FILE --port N`."""

import asyncio
import sys
from typing import Annotated

import structlog
import typer

from e2e.simulator.server import SimulatorServer
from e2e.simulator.watching import PodWatch


def main(
    kubeconfig: Annotated[str, typer.Option(help="Whose pods to play.")],
    port: Annotated[int, typer.Option(help="Where to listen on loopback.")],
    elsewhere: Annotated[
        list[str] | None,
        typer.Option(help="IMAGE=URL: programs of that image answer at URL/NAMESPACE/NAME. Repeatable."),
    ] = None,
) -> None:
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    cluster = PodWatch(kubeconfig, dict(each.split("=", 1) for each in elsewhere or ()))
    asyncio.run(SimulatorServer(port).run(cluster.follow_pods, cluster.follow_suspensions))


typer.run(main)
