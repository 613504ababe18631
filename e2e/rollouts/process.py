"""The operator of one shard as a process of its own, so that it can be killed like any other: it keeps its record in a
file, reads the desired state from another, and writes every request it makes into a third."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from pydantic import BaseModel

from e2e.rollouts.reconciles import Reconciles
from e2e.rollouts.record import Record
from e2e.rollouts.site import Desired, Site
from e2e.stack.server import Server

PACE = 0.25
"""Seconds between two reconciles, about the operator's own."""


class Death(BaseModel):
    """The operator kills itself when the `number`-th request of this word has got to `moment`."""

    request: str
    number: int = 1
    moment: str = "done"


class Moment(BaseModel):
    """A line of the requests' file. `at` is Unix time in seconds."""

    at: float
    request: str
    moment: str


class Files:
    """The files in an operator's folder."""

    def __init__(self, folder: Path) -> None:
        self.site = folder / "site.json"
        self.desired = folder / "desired.json"
        self.status = folder / "status.json"
        self.requests = folder / "requests.jsonl"
        self.death = folder / "death.json"

    def moments(self) -> list[Moment]:
        """Every request of every life so far. A last line that is being written is left out."""
        if not self.requests.exists():
            return []
        lines = self.requests.read_text().split("\n")[:-1]
        return [Moment.model_validate_json(line) for line in lines]


class RolloutOperator(Server):
    """`python -m e2e.rollouts.process FOLDER`, started and killed like a server."""

    def __init__(self, folder: Path, site: Site) -> None:
        super().__init__("operator", folder, dies_with_parent=True)
        self.files = Files(self.folder)
        self._site = site

    def want(self, desired: Desired) -> None:
        """Change the spec: the next reconcile sees it."""
        self.folder.mkdir(parents=True, exist_ok=True)
        new = self.files.desired.with_suffix(".new")
        new.write_text(desired.model_dump_json())
        new.replace(self.files.desired)

    def die_at(self, death: Death) -> None:
        """To be called before the request can come; its number counts from now on."""
        same = [m for m in self.files.moments() if (m.request, m.moment) == (death.request, death.moment)]
        counted = death.model_copy(update={"number": death.number + len(same)})
        self.files.death.write_text(counted.model_dump_json())

    def prepare(self) -> list[str]:
        self.files.site.write_text(self._site.model_dump_json())
        return [sys.executable, "-m", "e2e.rollouts.process", str(self.folder)]

    def answers(self) -> bool:
        return self.files.status.exists()

    def record(self) -> Record:
        """What it has noted so far."""
        return Record(self.files.status)


async def operate(files: Files) -> None:
    """Reconcile again and again, indefinitely."""
    record = Record(files.status, _RequestLog(files))
    reconciles = Reconciles(Site.model_validate_json(files.site.read_text()), record)
    while True:
        await reconciles.reconcile(Desired.model_validate_json(files.desired.read_text()))
        await asyncio.sleep(PACE)


class _RequestLog:
    def __init__(self, files: Files) -> None:
        self._files = files

    def __call__(self, request: str, moment: str) -> None:
        with self._files.requests.open("a") as lines:
            lines.write(json.dumps({"at": time.time(), "request": request, "moment": moment}) + "\n")
        death = self._death()
        if death is not None and (death.request, death.moment) == (request, moment):
            same = [m for m in self._files.moments() if (m.request, m.moment) == (request, moment)]
            if len(same) == death.number:
                os.kill(os.getpid(), signal.SIGKILL)

    def _death(self) -> Death | None:
        path = self._files.death
        return Death.model_validate_json(path.read_text()) if path.exists() else None


def main(arguments: Iterator[str]) -> None:
    asyncio.run(operate(Files(Path(next(arguments)))))


if __name__ == "__main__":
    main(iter(sys.argv[1:]))
