"""The pictures of docs/dashboards.md: each is there, is of its panel, and has a caption."""

from __future__ import annotations

from pathlib import Path

import pytest

from e2e.chaos.pictures import SHOWN, picture
from scripts.dashboards.seen import CAPTIONS, FOLDER

PICTURES = Path(__file__).parents[3] / "docs" / FOLDER
PANELS = [(uid, title) for uid, titles in SHOWN.items() for title in titles]


def test_the_pictures_are_those_that_a_run_draws() -> None:
    assert {path.name for path in PICTURES.iterdir()} == {picture(uid, title) for uid, title in PANELS}
    assert set(CAPTIONS) == {title for _, title in PANELS}


@pytest.mark.parametrize(("uid", "title"), PANELS)
def test_a_picture_is_of_its_panel_and_has_lines(uid: str, title: str) -> None:
    svg = (PICTURES / picture(uid, title)).read_text()

    assert f">{title}</text>" in svg
    assert "<polyline" in svg
