"""A ClickHouse server that cannot be asked is asked again later, whatever keeps it: no reconcile may crash for it."""

from __future__ import annotations

from typing import Any

import pytest

from blockhouse.errors import Retryable
from blockhouse_operator.adapters.clickhouse_http import ClickHouseHttp, Login


class Fence:
    def check(self) -> None: ...


@pytest.mark.parametrize(
    "base", [f"http://{'x' * 70}.example:8123", "http://127.0.0.1:1"], ids=["no host name", "closed port"]
)
async def test_a_server_that_cannot_be_reached_is_retried(base: str) -> None:
    fence: Any = Fence()
    server = ClickHouseHttp(fence)
    try:
        with pytest.raises(Retryable, match="does not answer"):
            await server.replicated_tables(base, Login("default", ""))
    finally:
        await server.close()
