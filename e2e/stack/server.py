"""One real server as an object: start, wait, kill, freeze, restart. What it runs is for the subclasses to define."""

from __future__ import annotations

import signal
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from string import Template
from typing import ClassVar

import psutil

from blockhouse.errors import BlockhouseError
from e2e.stack import process

QUICK_JIT = "-XX:TieredStopAtLevel=1"
"""Java compiles once and well enough: servers that start often must not spend their first minutes on it."""
START_TIMEOUT = 300.0
"""Seconds a server may take to answer: two shared cores may be starting a dozen of them."""

STOP_GRACE = 5.0
"""Seconds between SIGTERM and SIGKILL: ZooKeeper and ClickHouse 18.16 end slowly while clients are connected."""

_TEMPLATES = Path(__file__).parent / "templates"


class StackError(BlockhouseError):
    """A server of the stack could not be started or did not answer."""


def render(template: str, **values: object) -> str:
    """The configuration file `template` with its `$names` filled in; KeyError for one without a value."""
    return Template((_TEMPLATES / template).read_text()).substitute(values)


class Server(ABC):
    """A server process and its folder. All methods may be called at any time and in any state."""

    environment: ClassVar[dict[str, str]] = {}
    """Variables every process of the kind gets besides our own; `variables` are those of this one alone."""

    def __init__(self, name: str, folder: Path, *, dies_with_parent: bool) -> None:
        self.name = name
        self.folder = folder.absolute()
        self.group: int | None = None
        self.variables: Mapping[str, str] = {}
        self._dies_with_parent = dies_with_parent
        self._process = process.find(self.folder)

    @abstractmethod
    def prepare(self) -> list[str]:
        """Writes the configuration and returns the command to run."""

    @abstractmethod
    def answers(self) -> bool:
        """True when the server does its work for clients now. Must return within about two seconds."""

    @property
    def log(self) -> Path:
        """The file with everything the server prints."""
        return self.folder / "server.log"

    @property
    def output(self) -> Path:
        """Where standard output and error go: the log itself, unless the server writes that by itself."""
        return self.log

    @property
    def alive(self) -> bool:
        """The process exists; a frozen one does too."""
        return self._process is not None and process.is_alive(self._process)

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process is not None and self.alive else None

    @property
    def frozen(self) -> bool:
        try:
            return self._process is not None and self.alive and self._process.status() == psutil.STATUS_STOPPED
        except psutil.NoSuchProcess:  # it died since it was alive
            return False

    def start(self, *, wait: bool = True) -> None:
        """Starts the server, on the ports it always had, or thaws a frozen one, and waits until it answers."""
        if self.frozen:
            self.thaw()
        if not self.alive:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._process = self._spawn(self.prepare(), self.output)
        if wait:
            self.wait_ready()

    def wait_ready(self, timeout: float = START_TIMEOUT) -> None:
        """Waits until the server answers; StackError with the end of its log when it dies or stays silent."""
        answered = process.wait_until(
            lambda: not self.alive or self.answers(), timeout=timeout, what=f"start of {self.name}"
        )
        if not answered:
            raise StackError(f"{self.name} did not answer within {timeout:g} s{self._last_words()}")
        if not self.alive:
            raise StackError(f"{self.name} died{self._last_words()}")

    def start_again_if_hung(self) -> bool:
        """Whether it had to be killed and started again because it hangs at its start; no server does but some."""
        return False

    def stop(self, grace: float = STOP_GRACE) -> None:
        """Ends the server in order; after `grace` seconds by force."""
        if self._process is not None and self.alive:
            self.terminate()
            process.signal_session(self._process, signal.SIGCONT)  # a frozen one could not obey
            if not process.wait_dead(self._process, grace):
                self.kill()

    def terminate(self) -> None:
        """Ask the server to end in order, and do not wait."""
        if self._process is not None:
            process.signal_session(self._process, signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL, then waits for the death: a crash in the middle of whatever it does."""
        if self._process is not None and self.alive:
            process.signal_session(self._process, signal.SIGKILL)
            if not process.wait_dead(self._process, 30):
                raise StackError(f"{self.name} (pid {self._process.pid}) survived SIGKILL for 30 s")

    def restart(self) -> None:
        self.stop()
        self.start()

    def freeze(self) -> None:
        """SIGSTOP: it keeps its connections and sends nothing, like a machine that hangs."""
        if self._process is None or not self.alive:
            raise StackError(f"{self.name} does not run, so it cannot be frozen")
        process.signal_session(self._process, signal.SIGSTOP)
        process.wait_until(lambda: self.frozen, timeout=5)

    def thaw(self) -> None:
        """SIGCONT: it continues where it stopped, not knowing that time has passed."""
        if self._process is not None and self.alive:
            process.signal_session(self._process, signal.SIGCONT)
            process.wait_until(lambda: not self.frozen, timeout=5)

    def _spawn(self, command: list[str], log: Path) -> psutil.Process:
        return process.spawn(
            command,
            folder=self.folder,
            log=log,
            dies_with_parent=self._dies_with_parent,
            env={**self.environment, **self.variables},
            group=self.group,
        )

    def _last_words(self, lines: int = 25) -> str:
        texts = [p.read_text(errors="replace") for p in dict.fromkeys((self.output, self.log)) if p.exists()]
        tail = [line for text in texts for line in text.splitlines()[-lines:]]
        return f"; the end of {self.log}:\n" + "\n".join(tail) if tail else f" and left no log in {self.log}"
