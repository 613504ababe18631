"""`python -m e2e.standin --config-file=CONFIG`: what `clickhouse-server --config-file=CONFIG` does, until SIGTERM.

The engine is one for queries: it serves as long as a query runs. So it is given a query that reads a pipe to which
nothing writes; when the pipe is closed, the query ends, and the server with it, in order.
It must never run an engine other than the one that the shim was written for.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import signal
import sys
import threading
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from e2e.standin import REPLICAS_HOST, SERIES, SHIM
from e2e.standin.credentials import follow

_LIBRARY = "_chdb.abi3.so"
_PIPE = "until"
_QUERIES = (
    "SYSTEM START LISTEN TCP; SYSTEM START LISTEN HTTP;"
    " SELECT count() FROM file('{pipe}', LineAsString) SETTINGS max_execution_time = 0"
)


def main(config: Path) -> int:
    """Serve until SIGTERM; 0 then. Whatever else ends the engine is printed on standard error, and 1."""
    tree = ElementTree.parse(config)
    data = Path(tree.findtext("path", "")).absolute()
    pipe = config.parent / _PIPE
    pipe.unlink(missing_ok=True)
    os.mkfifo(pipe, 0o600)
    # All threads inherit this, those of the engine too: the signal waits for us.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    engine = _engine(int(tree.findtext("http_port", "0")))
    follow(config)
    os.chdir(config.parent)  # where the engine looks for config.xml
    until = os.open(pipe, os.O_RDWR)
    failures: list[BaseException] = []

    def serve() -> None:
        try:
            engine.query(_QUERIES.format(pipe=pipe), "TSV", path=str(data))
        except BaseException as error:  # noqa: BLE001 - the main thread prints it
            failures.append(error)
        os.kill(os.getpid(), signal.SIGTERM)  # ends the wait below

    serving = threading.Thread(target=serve, daemon=True)
    serving.start()
    signal.sigwait({signal.SIGTERM})
    os.close(until)
    serving.join()
    for error in failures:
        sys.stderr.write(f"ClickHouse {SERIES} (stand-in) ended: {error}\n")
    sys.stderr.flush()
    return 1 if failures else 0


def _engine(replicas_port: int) -> Any:
    """The engine's module, made a replica that others reach at `replicas_port`."""
    engine = _load()
    make_replica(_LIBRARY, replicas_port)
    return engine


def make_replica(library: str, port: int) -> None:
    """Let the loaded `library` serve other replicas at `port`. SystemExit, and nothing changed, for another build."""
    if not SHIM.exists():
        raise SystemExit(f"cannot start ClickHouse {SERIES} (stand-in): {SHIM} is missing: run `make setup`")
    why = ctypes.create_string_buffer(300)
    arguments = (library.encode(), REPLICAS_HOST.encode(), ctypes.c_uint16(port), why, ctypes.c_size_t(len(why)))
    if ctypes.CDLL(str(SHIM)).make_replica(*arguments) != 0:
        raise SystemExit(
            f"cannot start ClickHouse {SERIES} (stand-in): this is not the engine it was written for:"
            f" {why.value.decode()}; install requirements.lock (`make setup`), or use another CLICKHOUSE"
        )


def _load() -> Any:
    """The extension module without its package: importing that one runs a first engine, in whatever folder we are."""
    package = importlib.util.find_spec("chdb")
    if package is None or not package.submodule_search_locations:
        raise SystemExit(f"cannot start ClickHouse {SERIES} (stand-in): chdb-core is not installed: run `make setup`")
    library = Path(package.submodule_search_locations[0]) / _LIBRARY
    sys.setdlopenflags(os.RTLD_NOW | os.RTLD_DEEPBIND)  # it brings libraries of its own that others have too
    spec = importlib.util.spec_from_file_location("_chdb", library)
    assert spec is not None, library
    assert spec.loader is not None, library
    os.chdir(library.parent)  # where it looks for the library of this Python's version
    engine = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(engine)
    return engine


if __name__ == "__main__":
    (option,) = sys.argv[1:]
    os._exit(main(Path(option.removeprefix("--config-file=")).absolute()))  # without waiting for the engine's threads
