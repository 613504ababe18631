"""Servers that run as long as a context lasts."""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self


class Stage(ABC):
    """A context manager. When one of its servers does not start, none is left running."""

    @abstractmethod
    def start(self) -> None: ...

    @abstractmethod
    def close(self) -> None:
        """Stop everything, also what has started only in part."""

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
