"""The page that producers read describes what the code does."""

from __future__ import annotations

from pathlib import Path

import pytest

from blockhouse.schema.document import with_parts

PAGE = Path(__file__).parents[3] / "docs" / "message-format.md"


def test_the_table_of_types_is_current() -> None:
    assert PAGE.read_text() == with_parts(PAGE.read_text()), f"run python -m blockhouse.schema.document {PAGE}"


def test_a_page_without_the_marks_is_refused() -> None:
    with pytest.raises(ValueError, match="lacks"):
        with_parts("# no table")
