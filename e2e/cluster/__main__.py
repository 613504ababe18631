"""`python -m e2e.cluster`: the same as `blockhouse cluster`."""

from e2e.cluster.cli import app

app()
