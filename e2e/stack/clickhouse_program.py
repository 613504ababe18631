"""Which ClickHouse a stack runs: a current one, the oldest supported, or whatever program is named.

It never downloads anything; `make setup` has brought what is there.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from e2e import standin
from e2e.clickhouse_choice import CURRENT, OLDEST, VARIABLE
from e2e.stack.server import StackError

_RETRY = {"initialization_retry_period": "2"}
"""A table whose server starts before ZooKeeper is read-only until this many seconds later; the default is a minute."""
_SBIN = "/usr/sbin:/usr/local/sbin"
_RENAMED = (21, 10)
"""From this version on the root of a configuration is `clickhouse`; before, `yandex`."""


@dataclass(frozen=True, slots=True)
class Program:
    """`command` is followed by `--config-file=FILE`. `root` is the name of that file's root element.

    `server`, `zookeeper` and `profile` are further XML of the configuration, its section `zookeeper` and the default
    profile, `merge_tree` settings of MergeTree.
    """

    command: tuple[str, ...]
    root: str = "clickhouse"
    server: str = ""
    zookeeper: str = ""
    profile: str = ""
    merge_tree: Mapping[str, str] = field(default_factory=dict)


def program(choice: str, *, shard: str, replica: str, log_level: str = "information") -> Program:
    """What to run as replica `replica` of `shard` for CLICKHOUSE=`choice`: "26.9", "18.16", or a path of a program.

    Raises StackError when it is not there, or not of the chosen version.
    """
    if choice == CURRENT:
        return _stand_in(shard, replica, log_level)
    if choice == OLDEST:
        found = shutil.which("clickhouse-server") or shutil.which("clickhouse-server", path=_SBIN)
        if not found:
            raise StackError("cannot start ClickHouse 18.16: no clickhouse-server on this machine, run `make setup`")
        if version := _version(found):
            text = f"cannot start ClickHouse 18.16: {found} is {'.'.join(map(str, version))}"
            raise StackError(f"{text}: use {VARIABLE}={found}, or install Debian 12's clickhouse-server")
        return _installed(found, ())
    if "/" not in choice:
        raise StackError(f"{VARIABLE} must be {CURRENT}, {OLDEST} or the path of a clickhouse-server, not {choice!r}")
    found = shutil.which(str(Path(choice).absolute()))
    if not found:
        raise StackError(f"{VARIABLE}={choice}: there is no such program, or it may not be executed")
    return _installed(found, _version(found))


def _stand_in(shard: str, replica: str, log_level: str) -> Program:
    """Replicas of it share one server UUID, zero, by which each would end the others' sessions with ZooKeeper: so each
    registers its session at a path of its own. Its pools have one thread each by default, for it serves one user."""
    server = {
        "listen_host": standin.REPLICAS_HOST,
        "log-level": log_level,
        "background_schedule_pool_size": 16,
        "background_fetches_pool_size": 4,
        "background_common_pool_size": 2,
    }
    return Program(
        (sys.executable, "-m", standin.__name__),
        server=_xml(server),
        zookeeper=_xml({"sessions_path": f"/clickhouse/sessions/{shard}-{replica}"}),
        merge_tree=_RETRY,
    )


def _installed(path: str, version: tuple[int, ...]) -> Program:
    server = (path,) if Path(path).name != "clickhouse" else (path, "server")
    if version >= _RENAMED:
        return Program(server, merge_tree=_RETRY)
    pools = {"background_pool_size": 4, "background_schedule_pool_size": 4}
    return Program(server, root="yandex", profile=_xml(pools))


def _xml(elements: Mapping[str, object]) -> str:
    return "".join(f"<{name}>{value}</{name}>" for name, value in elements.items())


@cache
def _version(path: str) -> tuple[int, ...]:
    """E.g. (24, 8, 5, 115); empty for servers that cannot report it, which are older than 20.1."""
    output = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=60, check=False).stdout
    match = re.search(r"version (\d+(?:\.\d+)+)", output)
    return tuple(map(int, match[1].split("."))) if match else ()
