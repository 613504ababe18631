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
) -> None:
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    cluster = PodWatch(kubeconfig)
    asyncio.run(SimulatorServer(port).run(cluster.follow_pods, cluster.follow_suspensions))


typer.run(main)
