"""The simulator as a server that is started and killed like the others."""

from __future__ import annotations

import sys
import urllib.request
from pathlib import Path

from blockhouse_operator.adapters.endpoints import AGGREGATOR_URL, CLICKHOUSE_URL, MIRROR_URL, VERIFIER_URL
from e2e.stack.server import Server


class Simulator(Server):
    """Plays the pods of one cluster on one port of loopback."""

    def __init__(self, folder: Path, *, kubeconfig: Path, port: int, dies_with_parent: bool = True) -> None:
        super().__init__("simulator", folder, dies_with_parent=dies_with_parent)
        self.kubeconfig = kubeconfig
        self.elsewhere: dict[str, str] = {}
        """Base URLs by image, of simulators of other versions; as an option, since these know annotations as well."""
        self.port = port

    @property
    def ways(self) -> dict[str, str]:
        """Variables of an operator that is to ask here. A version that does not know one ignores it."""
        return {
            AGGREGATOR_URL: self.aggregator_url,
            VERIFIER_URL: self.verifier_url,
            MIRROR_URL: self.mirror_url,
            CLICKHOUSE_URL: self.clickhouse_url,
        }

    @property
    def aggregator_url(self) -> str:
        """For `blockhouse operator run --aggregator-url`."""
        return f"http://127.0.0.1:{self.port}/{{namespace}}/{{replica}}"

    @property
    def verifier_url(self) -> str:
        """For `blockhouse operator run --verifier-url`."""
        return f"http://127.0.0.1:{self.port}/{{namespace}}/{{verifier}}"

    @property
    def mirror_url(self) -> str:
        """For `blockhouse operator run --mirror-url`."""
        return f"http://127.0.0.1:{self.port}/{{namespace}}/{{mirror}}"

    @property
    def clickhouse_url(self) -> str:
        """For `blockhouse operator run --clickhouse-url`."""
        return f"{self.aggregator_url}/clickhouse"

    def prepare(self) -> list[str]:
        return [
            *(sys.executable, "-m", "e2e.simulator"),
            *("--kubeconfig", str(self.kubeconfig), "--port", str(self.port)),
            *(word for image, url in self.elsewhere.items() for word in ("--elsewhere", f"{image}={url}")),
        ]

    def answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/healthz", timeout=2) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False
