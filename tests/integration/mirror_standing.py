"""One mirror under many faults: what a case leaves behind is what the next one begins with."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from e2e.kit.mirror import MirrorProcess
from e2e.stack import Stack

SETTINGS: dict[str, Any] = {
    # Topics that are quiet weigh nothing soon, and new partitions so much that each task gets half of them.
    "load": {"interval": "1s", "window": "10s", "default": "1Gi", "minTasks": 2, "maxTasks": 2},
    "targetTopics": {"interval": "1s", "sync": []},
    "onRefused": "DeadLetter",
}


class StandingMirror:
    """From cluster a to b, of the topics that it creates itself."""

    def __init__(self, stack: Stack, folder: Path) -> None:
        self._stack, self._folder = stack, folder
        self._made = self._seconds = 0
        self._mirror: MirrorProcess | None = None

    @contextmanager
    def used(self) -> Iterator[MirrorProcess]:
        """The mirror, for one case. What a case that fails leaves behind is shown and used no more."""
        if self._mirror is None:
            self._mirror = self._start()
        first = self._mirror
        try:
            yield first
        except BaseException:
            for each in {id(mirror): mirror for mirror in (first, self._mirror)}.values():
                each.kill()
                print(f"--- {each.log}\n{each.log.read_text()[-6000:]}")
            self._mirror = None
            raise

    def topic(self, name: str, **options: Any) -> str:
        """A new topic of the source that the mirror of now mirrors, as `create_topic` makes it; its name."""
        topic = self.named(name)
        self._stack.kafka["a"].create_topic(topic, **options)
        return topic

    def named(self, name: str) -> str:
        return f"{self._prefix}{name}"

    def second(self) -> MirrorProcess:
        """Another process of the same name, which is the mirror from now on."""
        assert self._mirror is not None, "of one that is used"
        former, self._seconds = self._mirror, self._seconds + 1
        self._mirror = MirrorProcess(self._stack.kafka, self._folder, "", "")
        self._mirror.document = former.document | {"admin": self._mirror.document["admin"]}
        self._mirror.start(log=f"second-{self._seconds}.log")
        return self._mirror

    def close(self) -> None:
        """It ends in order."""
        if self._mirror is not None:
            code = self._mirror.terminate()
            assert code == 0

    @property
    def _prefix(self) -> str:
        """Of topics: a mirror that replaces a failed one has nothing to do with those of the former one."""
        return f"standing-{self._made}-"

    def _start(self) -> MirrorProcess:
        self._made += 1
        made = MirrorProcess(self._stack.kafka, self._folder, f"standing-{self._made}", f"{self._prefix}.*", **SETTINGS)
        made.start()
        return made
