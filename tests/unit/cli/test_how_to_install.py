"""Nothing leads to the package that has our name in an index: what is installed comes from a checkout or a wheel."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from types import SimpleNamespace

import pytest

from blockhouse.cli import extras

ROOT = Path(__file__).parents[3]
TEXTS = ("*.md", "docs/**/*.md", "examples/**/*", "charts/**/*", "scripts/*", "images/**/*")
PACKAGES = ("core", "aggregator", "mirror", "operator", "e2e", "bench")
BARE = re.compile(r"pip3? (?:install|download)\s+(?:-\S+\s+)*['\"]?blockhouse\b|(?<![\w/}])blockhouse(?:==[\d.]+)?\[")


def texts() -> Iterator[Path]:
    for pattern in (*TEXTS, *(f"{package}/**/*.py" for package in PACKAGES)):
        yield from (path for path in ROOT.glob(pattern) if path.is_file() and "target" not in path.parts)


def bare_names(path: Path) -> list[str]:
    return [found.group() for found in BARE.finditer(path.read_text(errors="ignore"))]


@pytest.mark.parametrize(
    "text",
    ["pip install 'blockhouse[producer]'", "pip install -q --upgrade blockhouse", "add `blockhouse[operator]`"],
)
def test_a_bare_name_is_recognised(text: str) -> None:
    assert BARE.search(text)


def test_no_text_installs_by_the_bare_name() -> None:
    found = {path.relative_to(ROOT).as_posix(): bare_names(path) for path in texts()}

    assert len(found) > 500, "the texts were not found"
    assert {path: names for path, names in found.items() if names} == {}


@pytest.mark.parametrize(
    ("recorded", "place"),
    [
        ('{"dir_info": {}, "url": "file:///src/block%20house"}', "/src/block house"),
        (
            '{"archive_info": {}, "url": "file:///dist/blockhouse-1-py3-none-any.whl"}',
            "/dist/blockhouse-1-py3-none-any.whl",
        ),
    ],
    ids=["checkout", "wheel"],
)
def test_the_place_that_it_was_installed_from_is_named(
    monkeypatch: pytest.MonkeyPatch, recorded: str, place: str
) -> None:
    monkeypatch.setattr(extras, "distribution", lambda name: SimpleNamespace(read_text=lambda file: recorded))

    assert extras.how_to_install("wings") == (
        f"install Blockhouse with the extra [wings] from where it came from: pip install '{place}[wings]'"
    )


@pytest.mark.parametrize("recorded", [None, '{"url": "https://example.com/blockhouse.whl"}'], ids=["unknown", "remote"])
def test_without_such_a_place_none_is_invented(monkeypatch: pytest.MonkeyPatch, recorded: str | None) -> None:
    monkeypatch.setattr(extras, "distribution", lambda name: SimpleNamespace(read_text=lambda file: recorded))

    assert "from the checkout or wheel that it came from" in extras.how_to_install("wings")
    assert not BARE.search(extras.how_to_install("wings"))


def test_not_installed_at_all_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(extras, "distribution", missing)

    assert "pip install '/path/to/blockhouse[wings]'" in extras.how_to_install("wings")
