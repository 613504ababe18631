"""Blocks over TLS: with the authority we trust, and never with another."""

from __future__ import annotations

import ssl
import subprocess
from pathlib import Path

import pytest

from blockhouse.config.endpoints import ClickHouse, Tls
from blockhouse_aggregator.clickhouse.client import Replica
from blockhouse_aggregator.clickhouse.errors import Fault, ServerFault
from e2e.stack import Stack
from tests.integration.clickhouse_blocks import block, count, rows
from tests.integration.clickhouse_proxy import Proxy
from tests.integration.conftest import TableFactory

pytestmark = pytest.mark.integration


def certificate(folder: Path, name: str) -> tuple[Path, Path]:
    """A self-signed certificate of 127.0.0.1, and its key."""
    certificate, key = folder / f"{name}.crt", folder / f"{name}.key"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=127.0.0.1"]
    extras = ["-addext", "subjectAltName=IP:127.0.0.1", "-out", str(certificate), "-keyout", str(key)]
    subprocess.run(command + extras, check=True, capture_output=True)
    return certificate, key


def test_a_block_is_stored_over_tls_and_an_unknown_authority_is_refused(
    stack: Stack, table: TableFactory, tmp_path: Path
) -> None:
    name = table()
    server = stack.clickhouse[1, 1]
    trusted, key = certificate(tmp_path, "server")
    other, _ = certificate(tmp_path, "other")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(trusted, key)

    with Proxy(server.port, tls=context) as proxy:
        with Replica(ClickHouse(port=proxy.port, tls=Tls(ca_file=trusted))) as good:
            request = block(server, name, rows(1, 20), padding=100_000)
            assert len(request.body) > 3 << 20
            good.insert_native(request)
        with Replica(ClickHouse(port=proxy.port, tls=Tls(ca_file=other))) as bad:
            with pytest.raises(ServerFault) as refused:
                bad.query("SELECT 1")
            assert refused.value.fault is Fault.REPLICA

    assert count(server, name) == 40
