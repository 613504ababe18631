"""`python -m e2e.simulator --kubeconfig FILE --port N`."""

import asyncio
import gc
import sys
from typing import Annotated

import structlog
import typer

from e2e.simulator.server import SimulatorServer
from e2e.simulator.watching import PodWatch

COLLECTOR = (700, 10, 1_000_000)
"""`gc.set_threshold`: never all objects. Those of thousands of pods live as long as the simulator, which stood still
for seconds each time: longer than an aggregator may take to answer."""


def main(
    kubeconfig: Annotated[str, typer.Option(help="Whose pods to play.")],
    port: Annotated[int, typer.Option(help="Where to listen on loopback.")],
    elsewhere: Annotated[
        list[str] | None,
        typer.Option(help="IMAGE=URL: programs of that image answer at URL/NAMESPACE/NAME. Repeatable."),
    ] = None,
) -> None:
    gc.set_threshold(*COLLECTOR)
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    cluster = PodWatch(kubeconfig, dict(each.split("=", 1) for each in elsewhere or ()))
    asyncio.run(SimulatorServer(port).run(cluster.follow_pods, cluster.follow_suspensions))


typer.run(main)
