"""What the tests of this folder leave behind: nothing in the environment."""

from __future__ import annotations

import os
from collections.abc import Iterator
from unittest.mock import patch

import pytest


@pytest.fixture(autouse=True)
def environment() -> Iterator[None]:
    """That of before comes back: a command called in this process sets CLICKHOUSE for all that it starts."""
    with patch.dict(os.environ):
        yield
