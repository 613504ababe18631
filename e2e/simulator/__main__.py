"""`python -m e2e.simulator --kubeconfig FILE --port N`."""

import typer

from e2e.simulator.server import main

typer.run(main)
