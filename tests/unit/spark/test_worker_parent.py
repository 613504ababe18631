"""The parent of Spark's workers. That tasks run in its children is shown wherever a real aggregator runs."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

PRELOAD = """
import os, sys
from blockhouse.spark.daemon import preload
from blockhouse_aggregator.spark.daemon import PRELOADED
preload(PRELOADED)
print(len(os.listdir("/proc/self/task")), "blockhouse_aggregator.spark.task" in sys.modules, "pyarrow" in sys.modules)
"""


def test_all_that_a_task_imports_starts_no_thread_before_a_worker_is_forked() -> None:
    printed = subprocess.run([sys.executable, "-c", PRELOAD], capture_output=True, text=True, check=True, timeout=60)
    assert printed.stdout.split() == ["1", "True", "True"]


BLOCK = """
import numpy, pyarrow
from blockhouse.spark.daemon import preload
from blockhouse_aggregator.spark.daemon import PRELOADED
preload(PRELOADED)
import pandas_is_here
print(pyarrow.array(numpy.arange(2)).to_pylist(), "pandas" in __import__("sys").modules)
"""


def test_arrow_works_without_pandas_even_where_it_is_installed(tmp_path: Path) -> None:
    # given a pandas that cannot be overlooked
    (tmp_path / "pandas.py").write_text("raise SystemExit('pandas was imported')")
    (tmp_path / "pandas_is_here.py").touch()
    # when a block's first column is built
    printed = python(BLOCK, tmp_path)
    # then nothing has imported it
    assert printed == "[0, 1] False"


ARCHIVED = """
import sys
from blockhouse.spark.daemon import leave_archives
leave_archives()
import pyspark
print(pyspark.__file__)
"""


def test_pyspark_is_imported_from_where_it_is_installed_and_not_from_sparks_archive(tmp_path: Path) -> None:
    # given the archive that Spark puts on its workers' path
    archive = pyspark_archive(tmp_path)
    assert "pyspark.zip" in python("import pyspark; print(pyspark.__file__)", archive)
    # then it is left, for what is installed
    assert "site-packages" in python(ARCHIVED, archive)


def test_pyspark_is_imported_from_sparks_archive_where_it_is_not_installed(tmp_path: Path) -> None:
    archive = pyspark_archive(tmp_path)
    hidden = "import sys; sys.path[:] = [p for p in sys.path if not p.endswith('-packages')]" + ARCHIVED
    assert "pyspark.zip" in python(hidden, archive)


def pyspark_archive(folder: Path) -> Path:
    with zipfile.ZipFile(folder / "pyspark.zip", "w") as archive:
        archive.writestr("pyspark/__init__.py", "")
    return folder / "pyspark.zip"


def python(code: str, first_path: Path) -> str:
    """What the code prints with `first_path` before all other paths."""
    paths = os.pathsep.join([str(first_path), *(path for path in sys.path if path and not path.endswith(".zip"))])
    environment = os.environ | {"PYTHONPATH": paths}
    command = [sys.executable, "-c", code]
    return subprocess.run(
        command, capture_output=True, text=True, check=True, timeout=60, env=environment
    ).stdout.strip()
