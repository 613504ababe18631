"""Where the programs of a Kubernetes are. They are built by `scripts/cluster-binaries`, never downloaded."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

from e2e.cluster.spec import ClusterError

SCRIPT = Path(__file__).parents[2] / "scripts" / "cluster-binaries"


@dataclass(frozen=True)
class Binaries:
    """The folder of the programs; `binaries["kubectl"]` is one of them."""

    folder: Path

    def __getitem__(self, name: str) -> str:
        """The path of a program. ClusterError when it was not built."""
        path = self.folder / name
        if not path.exists():
            raise ClusterError(f"{path} is missing: run scripts/cluster-binaries")
        return str(path)

    @classmethod
    def find(cls) -> Binaries:
        """The programs of this checkout's versions. ClusterError when they are not built; this never builds them."""
        done = subprocess.run([SCRIPT, "--check", "kube", "kwok", "helm"], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise ClusterError(
                f"{done.stderr.strip() or 'no Kubernetes'}: run scripts/cluster-binaries, "
                "which takes 15 to 60 minutes the first time"
            )
        return cls(Path(done.stdout.strip()))
