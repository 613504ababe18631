"""The folder of one demonstration: files of others are never removed, and two runs never share one."""

from __future__ import annotations

import fcntl
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from blockhouse.errors import BlockhouseError
from e2e.stack import Stack
from e2e.stack.stack import read_state

MARK = "demo.lock"
"""Its presence marks the folder of a demonstration; its lock, that one runs there now."""
STACK = "stack"


@contextmanager
def workspace(folder: Path) -> Iterator[Path]:
    """The folder, emptied of an earlier demonstration and locked. BlockhouseError when it is in use or not ours."""
    folder = folder.absolute()
    if folder.exists() and any(folder.iterdir()) and not (folder / MARK).exists():
        raise BlockhouseError(f"{folder} holds files of something else: name another --folder, or empty it")
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / MARK).open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise BlockhouseError(f"a demonstration runs in {folder} already: give this one another --folder") from None
        _clear(folder)
        yield folder


def _clear(folder: Path) -> None:
    stack = folder / STACK
    if read_state(stack) is not None and any(server.alive for server in Stack.attach(stack).servers.values()):
        raise BlockhouseError(f"servers run in {stack}: `blockhouse stack down --folder {stack}` first")
    for path in folder.iterdir():
        if path.name == MARK:
            continue
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()


@contextmanager
def stderr_to(path: Path) -> Iterator[None]:
    """What client libraries write to file descriptor 2 goes to `path`: it would tear the live display apart."""
    sys.stderr.flush()
    saved = os.dup(2)
    try:
        with path.open("ab") as log:
            os.dup2(log.fileno(), 2)
        yield
    finally:
        sys.stderr.flush()
        os.dup2(saved, 2)
        os.close(saved)
