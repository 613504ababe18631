"""The folders for temporary files of Python and Java may vanish under a running aggregator: nothing of it stops."""

from __future__ import annotations

from pathlib import Path
from shutil import rmtree

import pytest

from e2e.stack import Stack
from tests.integration.runtime_pipeline import Loading, loading

pytestmark = pytest.mark.integration


def test_temporary_folders_that_vanish_stop_nothing(running_stack: Stack, tmp_path: Path) -> None:
    folders = {name: tmp_path / name for name in ("python", "java", "scratch")}
    for folder in folders.values():
        folder.mkdir()
    variables = {"TMPDIR": str(folders["python"]), "JAVA_TOOL_OPTIONS": f"-Djava.io.tmpdir={folders['java']}"}
    settings = {"spark": {"lease": "3s", "conf": {"spark.local.dir": str(folders["scratch"])}}}

    def place(found: Loading) -> None:
        for aggregator in found.aggregators:
            aggregator.variables = variables

    with loading(
        running_stack, tmp_path, "temporary", aggregators=1, clusters=1, settings=settings, before=place
    ) as found:
        table = found.feed.table("temporary")
        found.feed.send(table, 3)
        found.settle(table)
        (aggregator,) = found.aggregators
        assert not aggregator.logged("lease.failed")
        for name in ("python", "java"):
            rmtree(folders[name])
        aggregator.kill_member("worker")  # the next ones begin without them
        found.feed.send(table, 3)
        found.feed.raw(b"\x0a\xff", found.feed.encode(table, [{"id": 1}])[1], to=("a", 0))
        found.settle(table)
        assert aggregator.alive
