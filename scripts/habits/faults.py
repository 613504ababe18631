"""What a rule finds, and the files it looks for it in."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
PRODUCT = (
    "core/blockhouse/",
    "aggregator/blockhouse_aggregator/",
    "mirror/blockhouse_mirror/",
    "operator/blockhouse_operator/",
)


@dataclass(frozen=True, slots=True, order=True)
class Fault:
    """One breach of `rule`. `text` has what is wrong and what to do."""

    path: str
    line: int
    rule: str
    text: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.rule}: {self.text}"


@dataclass(frozen=True)
class Tree:
    """The text files under `root`, by their path from it."""

    root: Path
    paths: Sequence[str]

    @classmethod
    def tracked(cls, root: Path = ROOT) -> Tree:
        """What git tracks or would track. Raises CalledProcessError outside a repository."""
        command = ["git", "-C", str(root), "ls-files", "--cached", "--others", "--exclude-standard"]
        listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
        return cls(root, tuple(sorted(path for path in set(listed) if (root / path).is_file())))

    def python(self, *folders: str) -> Iterator[tuple[str, str]]:
        """Path and text of each Python file below one of `folders` (of all without one)."""
        for path in self.paths:
            if path.endswith(".py") and (not folders or path.startswith(folders)):
                yield path, self.text(path)

    def text(self, path: str) -> str:
        """The file's text; of a file that is not UTF-8, what can be read of it."""
        return _read(self.root / path)


@cache
def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace")


Reasons = Mapping[str, Mapping[str, str]]
"""Rule -> what is excused -> why."""
