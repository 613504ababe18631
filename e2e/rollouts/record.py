"""What outlives an operator: the shard's status and the Events, in memory or in a file; all it needs of a Kubernetes.

Nothing else may survive a reconcile, so a test that makes a new operator on the same record has killed the former one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from blockhouse_operator.adapters.kinds import Kind, Object
from blockhouse_operator.api.status import ClickHouseShardIngestStatus

Report = Callable[[str, str], None]
"""Called for each request that changes something: its name, and "begun" or "done"."""


def unreported(_request: str, _moment: str) -> None:
    """A `Report` that goes nowhere."""


class Record:
    """Has the methods of `adapters.kubernetes.Kubernetes` that reconciles of tables and restarts use."""

    def __init__(self, path: Path | None = None, report: Report = unreported) -> None:
        self.report = report
        self.events: list[str] = []
        """Reasons and messages of the Events."""
        self._path = path
        known = path is not None and path.exists()
        text = path.read_text() if path is not None and known else "{}"
        self.status = ClickHouseShardIngestStatus.model_validate_json(text)

    async def apply_status(self, _kind: Kind, _live: Object, status: Mapping[str, Any]) -> bool:
        after = ClickHouseShardIngestStatus.model_validate(status)
        if after == self.status:
            return False
        self.report("status", "begun")
        self.status = after
        if self._path is not None:
            new = self._path.with_suffix(".new")
            new.write_text(after.model_dump_json(by_alias=True, exclude_none=True))
            new.replace(self._path)
        self.report("status", "done")
        return True

    async def list(self, *_: object) -> list[Object]:
        """The pipeline has one shard: there are no others."""
        return []

    async def emit(self, _about: Object, *, reason: str, message: str, **_: object) -> None:
        self.events.append(f"{reason}: {message}")
