"""The word list: one word for one meaning, in code, messages and docs.

Names are split into their words, so that `goes_on` is found like "goes on". Which words, and what to write instead,
stands in `words.toml`; words whose other meanings are plain English are not in it and stay a matter of review.
"""

from __future__ import annotations

import fnmatch
import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from scripts.habits.faults import Fault, Tree

RULE = "word"
LIST = Path(__file__).with_name("words.toml")
_SUFFIXES = (
    ".py", ".md", ".yaml", ".yml", ".tpl", ".sh", ".txt", ".toml", ".go", ".c", ".java", ".properties", ".html", ".xml",
    "Makefile", "Dockerfile",
)  # fmt: skip
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_GAP = r"[\s#*>]+"


@dataclass(frozen=True, slots=True)
class Word:
    pattern: re.Pattern[str]
    instead: str


@dataclass(frozen=True, slots=True)
class Allowed:
    """Files (globs) in which `text` (a regular expression of matched words; "*" is all) stays, and why."""

    files: tuple[str, ...]
    text: str
    reason: str

    def covers(self, path: str) -> bool:
        return any(fnmatch.fnmatch(path, files) for files in self.files)


@dataclass(frozen=True, slots=True)
class WordList:
    words: tuple[Word, ...]
    allowed: tuple[Allowed, ...]

    @classmethod
    def read(cls, path: Path = LIST) -> WordList:
        """Raises KeyError or ValueError for an entry without its replacement or reason."""
        found = tomllib.loads(path.read_text())
        words = tuple(Word(_compiled(entry["word"]), entry["instead"]) for entry in found["words"])
        allowed = tuple(Allowed(_globs(entry["files"]), entry["word"], entry["reason"]) for entry in found["allow"])
        if empty := [entry for entry in allowed if not entry.reason.strip()]:
            raise ValueError(f"{path.name}: {empty[0].files[0]} is allowed without a reason")
        return cls(words, allowed)

    def find(self, path: str, text: str) -> Iterator[Fault]:
        """Each use of a word of the list in `text`, which stands in the file `path`."""
        excused = [entry.text for entry in self.allowed if entry.covers(path)]
        if "*" in excused:
            return
        spread = _HUMP.sub(" ", text).replace("_", " ")
        for word in self.words:
            for match in word.pattern.finditer(spread):
                found = " ".join(match[0].split())
                if not any(re.fullmatch(text, found, re.IGNORECASE) for text in excused):
                    line = spread.count("\n", 0, match.start()) + 1
                    yield Fault(path, line, RULE, f'"{found}": write {word.instead}')


def check(tree: Tree, words: WordList) -> Iterator[Fault]:
    """Faults of every text file of the tree."""
    for path in tree.paths:
        if path.endswith(_SUFFIXES) or (path.startswith(("scripts/", ".ci/")) and "." not in Path(path).name):
            yield from words.find(path, tree.text(path))


def _globs(files: str | list[str]) -> tuple[str, ...]:
    return (files,) if isinstance(files, str) else tuple(files)


def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(rf"\b(?:{pattern.replace(' ', _GAP)})\b", re.IGNORECASE)
