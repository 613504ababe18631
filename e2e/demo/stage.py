"""What a demonstration happens on: its folder, a console, and a way to end that leaves nothing running."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import FrameType

import typer
from rich.console import Console

from e2e.kit.checks import Check
from e2e.kit.workspace import stderr_to, workspace

INTERRUPTED = 130


@contextmanager
def staged(folder: Path, *, keep: bool) -> Iterator[tuple[Path, Console]]:
    """The folder, emptied and locked, and where to print. What is interrupted within ends with exit code 130, and
    leaves the folder only if it shall be kept; what clients write to standard error goes to `demo.log` there."""
    console = Console()
    if not console.is_terminal:
        console = Console(width=120)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)
    with ExitStack() as exits:
        home = exits.enter_context(workspace(folder))
        try:
            with stderr_to(home / "demo.log"):
                yield home, console
        except KeyboardInterrupt:
            if not keep:
                shutil.rmtree(home, ignore_errors=True)
            console.print("interrupted: everything is stopped")
            raise typer.Exit(INTERRUPTED) from None
        except BaseException:
            console.print(f"failed; logs and configurations are in {home}")
            raise


def finish(console: Console, checks: Sequence[Check], shown: str) -> None:
    """Print what it has shown. Raises Exit with code 1, naming them, when checks failed."""
    failed = [check.demand for check in checks if not check.holds]
    if failed:
        console.print(f"FAILED: {'; '.join(failed)}", style="bold red")
        raise typer.Exit(1)
    console.print(shown, style="bold green")


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt
