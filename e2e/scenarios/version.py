"""Versions of the project: this one, that of another checkout, and one that does not exist yet.

What differs is the chart and what a program imports; the interpreter and its packages are the same.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

_PACKAGES = ("core", "aggregator", "mirror", "operator", "")
"""Folders that are imported from."""
FORMER_VARIABLE, LATER_VARIABLE = "SPARK_LOCAL_DIRS", "SPARK_LOCAL_DIRECTORIES"
"""What `later_version` calls differently in every replica's pod."""
LATER_FIELD = "knownLater"
"""A field of the spec that `later_version` defines in addition."""
_NEXT_FIELD = "\n              adminTls:\n"
"""Where it is put in the definition: before another field of the spec."""


@dataclass(frozen=True, slots=True)
class Version:
    """`root` is a checkout, or looks like one."""

    root: Path

    @property
    def chart(self) -> Path:
        return self.root / "charts" / "blockhouse"

    @property
    def examples(self) -> Path:
        return self.root / "examples"

    @property
    def variables(self) -> dict[str, str]:
        """Of a program of this version."""
        return {"PYTHONPATH": os.pathsep.join(str(self.root / name) for name in _PACKAGES)}


OURS = Version(Path(__file__).parents[2])


def later_version(folder: Path) -> Version:
    """Ours with another pod template, and with a field more in the definition of BlockAggregator."""
    for name in ("operator", "charts"):
        shutil.copytree(OURS.root / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("core", "aggregator", "mirror", "e2e", "examples"):
        (folder / name).symlink_to(OURS.root / name)
    later = Version(folder)
    _replace(folder / "operator" / "blockhouse_operator" / "desired" / "pod.py", FORMER_VARIABLE, LATER_VARIABLE)
    definition = later.chart / "templates" / "crds" / "blockaggregators.ingest.blockhouse.dev.yaml"
    added = f"\n              {LATER_FIELD}:\n                type: string{_NEXT_FIELD}"
    _replace(definition, _NEXT_FIELD, added)
    return later


def _replace(file: Path, former: str, later: str) -> None:
    text = file.read_text()
    assert former in text, f"{file} has no {former!r} to replace"
    file.write_text(text.replace(former, later))
