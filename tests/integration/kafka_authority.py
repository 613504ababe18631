"""Certificates of brokers and of their clients."""

from __future__ import annotations

import subprocess
from pathlib import Path

from e2e.cluster.pki import Authority


def authority_of_brokers(folder: Path) -> Authority:
    """A new authority in `folder`, with what `StackSpec.kafka_tls` needs there."""
    made = Authority(folder)
    made.create()
    certificate, key = made.issue("server", "/CN=127.0.0.1", ["IP:127.0.0.1"])
    command = ["openssl", "pkcs8", "-topk8", "-nocrypt", "-in", str(key)]  # the only form that a broker reads
    pkcs8 = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    (folder / "server.pem").write_text(pkcs8 + certificate.read_text())
    return made
