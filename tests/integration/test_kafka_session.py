"""Sessions on a real broker: how they end."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from e2e.stack import Stack
from tests.integration.conftest import Names, TopicFactory
from tests.integration.kafka_closer import SESSIONS

pytestmark = pytest.mark.integration

ROOT = Path(__file__).parents[2]


def test_a_session_ends_unheard_in_the_middle_of_its_first_assignment(
    stack: Stack, topic: TopicFactory, names: Names
) -> None:
    command = [
        sys.executable,
        "-m",
        "tests.integration.kafka_closer",
        stack.kafka["a"].bootstrap,
        topic(4),
        names.group,
    ]
    ended = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, timeout=200, check=True)
    assert ended.stdout.splitlines() == [f"{number} []" for number in range(SESSIONS)]
