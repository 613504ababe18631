"""The record of throttles in a file, for commands: what is ours in a cluster must survive the command that set it."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from blockhouse.errors import Permanent
from blockhouse.throttle.documents import Record, parse, render
from blockhouse.throttle.model import Override, Overrides, Ownership


def default_path(cluster_id: str) -> Path:
    """Where the record of a cluster is kept when none is given: one for each cluster and user."""
    state = os.environ.get("XDG_STATE_HOME")
    return (Path(state) if state else Path.home() / ".local" / "state") / "blockhouse" / f"throttle-{cluster_id}.json"


class FileStore:
    """One record in one file, changed under a lock and replaced whole: commands may run side by side."""

    def __init__(self, path: Path, cluster_id: str) -> None:
        self._path = path
        self._cluster = cluster_id
        self._held = False

    @property
    def path(self) -> Path:
        return self._path

    @property
    def cluster(self) -> str:
        """Id of the Kafka cluster."""
        return self._cluster

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """Alone with the record: another command waits until this one has decided and written. May be nested."""
        if self._held:
            yield
            return
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            lock = self._path.with_suffix(".lock").open("w")
        except OSError as error:
            raise self._unwritable(error) from error
        with lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            self._held = True
            try:
                yield
            finally:
                self._held = False

    def ownership(self) -> Ownership:
        return self._read().ownership

    def overrides(self) -> Overrides:
        return self._read().overrides

    def remember(self, ownership: Ownership) -> None:
        self._change(lambda record: replace(record, ownership=ownership))

    def override(self, broker: int | None, override: Override) -> None:
        """Ask for a rate of one broker, or of all."""

        def changed(record: Record) -> Record:
            now = record.overrides
            if broker is None:
                return replace(record, overrides=Overrides(override, now.brokers))
            return replace(record, overrides=Overrides(now.everywhere, {**now.brokers, broker: override}))

        self._change(changed)

    def forget_override(self, broker: int | None) -> None:
        def changed(record: Record) -> Record:
            now = record.overrides
            if broker is None:
                return replace(record, overrides=Overrides(None, now.brokers))
            left = {id: override for id, override in now.brokers.items() if id != broker}
            return replace(record, overrides=Overrides(now.everywhere, left))

        self._change(changed)

    def _read(self) -> Record:
        try:
            text = self._path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return Record(self._cluster)
        except OSError as error:
            raise Permanent(f"{self._path} cannot be read: {error}", reason="UnreadableRecord") from error
        record = parse(text, str(self._path))
        if record.cluster != self._cluster:
            raise Permanent(
                f"{self._path} is the record of Kafka cluster {record.cluster}, not of {self._cluster}: "
                "name another file with --state",
                reason="OtherCluster",
            )
        return record

    def _change(self, change: Callable[[Record], Record]) -> None:
        with self.exclusive():
            try:
                self._write(render(change(self._read())))
            except OSError as error:
                raise self._unwritable(error) from error

    def _unwritable(self, error: OSError) -> Permanent:
        return Permanent(
            f"{self._path} cannot be written, and nothing is throttled that is not recorded first: {error}",
            reason="UnwritableRecord",
        )

    def _write(self, text: str) -> None:
        new = self._path.with_suffix(".new")
        with new.open("w", encoding="utf-8") as out:
            out.write(text + "\n")
            out.flush()
            os.fsync(out.fileno())
        new.replace(self._path)
