"""ARCHITECTURE.md and the tree are the same: every folder it names exists, every package there is has its line."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "ARCHITECTURE.md").read_text()
NAMED = set(re.findall(r"`([\w./-]+/)`", PAGE))
SOURCE_ROOTS = ("core", "aggregator", "operator", "e2e")


def packages() -> set[str]:
    found = (init.parent.relative_to(ROOT) for root in SOURCE_ROOTS for init in (ROOT / root).rglob("__init__.py"))
    return {f"{package}/" for package in found}


def test_every_folder_that_is_named_exists() -> None:
    assert len(NAMED) > 20, "the names are no longer found"
    assert {name for name in NAMED if not (ROOT / name).is_dir()} == set()


def test_every_package_is_named() -> None:
    assert packages() - NAMED == set()


def test_the_source_roots_are_no_packages() -> None:
    for root in ("core", "aggregator", "operator"):
        assert not (ROOT / root / "__init__.py").exists(), "`operator` would hide the standard library's module"
