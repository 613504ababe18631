"""The pages are a site: every page has its place in it, every link its target."""

from __future__ import annotations

from pathlib import Path

import pytest
from mkdocs.commands.build import build
from mkdocs.config import load_config

ROOT = Path(__file__).parents[3]


def test_the_site_builds_without_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_MKDOCS_2_WARNING", "1")
    config = load_config(str(ROOT / "mkdocs.yml"), site_dir=str(tmp_path), strict=True)
    build(config)
    assert "exactly once" in (tmp_path / "index.html").read_text()
    pages = {path.relative_to(ROOT / "docs") for path in (ROOT / "docs").rglob("*.md")}
    assert {page for page in pages if not (tmp_path / page.with_suffix(".html")).exists()} == set()
    assert "//fonts." not in (tmp_path / "index.html").read_text(), "it has to work without internet"
