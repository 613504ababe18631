"""chDB as the judge of Native bytes: ClickHouse's own engine, kept in a child process.

It hangs in a forked child of a process that imported it, so that the process of the tests must not.
"""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Iterator

import pytest

CHILD = """
import pickle, sys, chdb
while True:
    try:
        query, form = pickle.load(sys.stdin.buffer)
    except EOFError:
        break
    try:
        answer = chdb.query(query, form).bytes()
    except Exception as error:
        answer = error.args
    pickle.dump(answer, sys.stdout.buffer)
    sys.stdout.buffer.flush()
"""


class Oracle:
    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process

    def query(self, text: str, form: str) -> bytes:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        pickle.dump((text, form), self._process.stdin)
        self._process.stdin.flush()
        answer = pickle.load(self._process.stdout)
        assert isinstance(answer, bytes), answer
        return answer


@pytest.fixture(scope="session")
def oracle() -> Iterator[Oracle]:
    with subprocess.Popen([sys.executable, "-c", CHILD], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        yield Oracle(process)
        assert process.stdin is not None
        process.stdin.close()
