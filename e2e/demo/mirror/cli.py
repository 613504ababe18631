"""Show a mirror on this machine: tasks that follow the load, a worker and the driver killed, and an audit."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Annotated

import typer

from e2e.demo.mirror.scenario import plan

DEFAULT_FOLDER = Path(".run/demo-mirror")
SERVERS = "servers"

_HELP = """Mirror while load grows, wanders and falls; kill a worker and the driver; audit every record.

Everything runs on this machine and is stopped at the end, also after Ctrl-C. Exit code 0 only if there were more tasks
when load grew and fewer when it fell, partitions moved when others became hot, a worker and the driver were killed with
partitions in their hands, and every record is on the target exactly once, unchanged and in order; 1 otherwise, with the
names of those that failed.

Examples:

  blockhouse demo mirror

  SEED=7 make demo-mirror
"""


def mirror(
    seed: Annotated[int, typer.Option(envvar="SEED", min=0, help="Decides load, victim and moments.")] = 1,
    folder: Annotated[Path, typer.Option(help="Where everything is kept; emptied at the start.")] = DEFAULT_FOLDER,
) -> None:
    # Heavy imports only here: `blockhouse demo --help` must not load Kafka's client.
    from e2e.demo.mirror.story import perform
    from e2e.demo.stage import finish, staged

    with staged(folder, keep=False) as (home, console):
        try:
            checks = perform(plan(seed), home, console)
        finally:
            shutil.rmtree(home / SERVERS, ignore_errors=True)
    finish(console, checks, "mirrored exactly once, shown")


mirror.__doc__ = _HELP
