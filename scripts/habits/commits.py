"""Subjects of commits. That a subject is imperative and gives its reason is for people to judge; its form is judged
here."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

from scripts.habits.faults import Fault

RULE = "commit"
SINCE = "7b3d688"
"""The last commit before the rule."""
LENGTH = 72
_NOT_IMPERATIVE = re.compile(
    r"(?:Added|Adds|Adding|Changed|Changes|Changing|Fixed|Fixes|Fixing|Made|Makes|Making|Moved|Moves|Moving"
    r"|Removed|Removes|Removing|Renamed|Renames|Renaming|Updated|Updates|Updating|Used|Uses|Using)\b"
)


def message(text: str) -> Iterator[str]:
    """What is wrong with a commit message; comments, and what follows git's scissors, are not part of it."""
    body = text.partition("\n# ------------------------ >8")[0]
    lines = [line.rstrip() for line in body.splitlines() if not line.startswith("#")]
    while lines and not lines[0]:
        del lines[0]
    subject = lines[0] if lines else ""
    if not subject:
        yield "the subject is empty"
    if subject.startswith(("fixup!", "squash!", "Merge ", "Revert ")):
        return
    if len(subject) > LENGTH:
        yield f"the subject has {len(subject)} columns, {LENGTH} at most: move the detail to the body"
    if subject.endswith("."):
        yield "the subject ends with a full stop"
    if subject[:1].islower():
        yield "the subject begins with a small letter"
    if found := _NOT_IMPERATIVE.match(subject):
        yield f'the subject begins with "{found[0]}": write the imperative ("Refuse ...", not "Refused ...")'
    if len(lines) > 1 and lines[1]:
        yield "the second line is not empty: a subject is one line"


def check(root: Path) -> Iterator[Fault]:
    """Faults of the commits since the rule. Nothing where the history is too short to know (a shallow clone)."""
    if _git(root, "merge-base", "--is-ancestor", SINCE, "HEAD").returncode:
        return
    listed = _git(root, "log", "--no-merges", "--abbrev=12", "--format=%h%x1f%B%x1e", f"{SINCE}..HEAD").stdout
    for entry in filter(None, (part.strip() for part in listed.split("\x1e"))):
        commit, _, text = entry.partition("\x1f")
        for fault in message(text):
            yield Fault(f"commit {commit}", 1, RULE, f"{text.splitlines()[0]!r}: {fault}")


def _git(root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, text=True, check=False)
