"""The operator as a process, with the rights of the chart's service account and no others."""

from __future__ import annotations

import os
import signal
import sys
import urllib.request
from pathlib import Path

from e2e.stack.server import Server


class OperatorProcess(Server):
    """`blockhouse operator run`; `arguments` are added to its command line."""

    def __init__(
        self, name: str, folder: Path, *, kubeconfig: Path, port: int, arguments: tuple[str, ...] = ()
    ) -> None:
        super().__init__(name, folder, dies_with_parent=True)
        self.kubeconfig = kubeconfig
        self.port = port
        self.arguments = arguments

    def prepare(self) -> list[str]:
        blockhouse = Path(sys.executable).with_name("blockhouse")
        return [
            *(str(blockhouse), "operator", "run", "--kubeconfig", str(self.kubeconfig)),
            *("--http-port", str(self.port), "--identity", self.name, *self.arguments),
        ]

    @property
    def state(self) -> str:
        """ "leading", "standing by", or "" while it does not answer."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/readyz", timeout=2) as answer:
                body: bytes = answer.read()
                return body.decode().strip()
        except OSError:
            return ""

    def answers(self) -> bool:
        return bool(self.state)

    @property
    def exit_code(self) -> int | None:
        """How it ended (negative: by a signal); None while it runs."""
        return None if self._process is None or self.alive else self._process.wait(5)

    def terminate(self) -> None:
        """SIGTERM, as Kubernetes sends it."""
        if self.pid is not None:
            os.kill(self.pid, signal.SIGTERM)
