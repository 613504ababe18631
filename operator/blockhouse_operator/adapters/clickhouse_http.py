"""What a managed ClickHouse reports about itself over HTTP, as the user with which replicas query each other.

A server that does not answer is an observation, not a failure. The password is a header: never in a URL, a log or an
error.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from typing import Any

import aiohttp

from blockhouse.errors import Permanent, Retryable
from blockhouse_operator.adapters.endpoints import UNREACHABLE
from blockhouse_operator.adapters.fence import Fence
from blockhouse_operator.adapters.trust import trust

SECONDS = 5.0
STATEMENT_SECONDS = 120.0
LARGEST_ANSWER = 64 << 20

REPLICAS = "SELECT concat(database, '.', table) AS name, zookeeper_path AS path, is_readonly FROM system.replicas"
PARTS = (
    "SELECT concat(database, '.', table) AS table_name, name AS part, toString(bytes_on_disk) AS size "
    "FROM system.parts WHERE active AND database != 'system'"
)


@dataclass(frozen=True, slots=True)
class Login:
    """Who asks, and by which authorities (PEM) a server with TLS is known: by the system's if empty."""

    user: str
    password: str
    authorities: str = ""

    def __repr__(self) -> str:
        return f"Login({self.user!r}, ...)"


@dataclass(frozen=True, slots=True)
class TableOnServer:
    """A replicated table as its server has it; `path` is its node in ZooKeeper."""

    name: str
    path: str
    readonly: bool


class ClickHouseHttp:
    """One connection pool for the servers of every pipeline. `close` it."""

    def __init__(self, fence: Fence) -> None:
        self._fence = fence
        self._session: aiohttp.ClientSession | None = None

    async def replicated_tables(self, base: str, login: Login) -> tuple[TableOnServer, ...]:
        """The replicated tables of a server. Raises Retryable when it does not answer, Permanent when it refuses."""
        rows = await self._rows(base, login, REPLICAS)
        return tuple(TableOnServer(row["name"], row["path"].rstrip("/"), bool(int(row["is_readonly"]))) for row in rows)

    async def part_sizes(self, base: str, login: Login) -> dict[str, dict[str, int]]:
        """Bytes of every active part, by table and part. Raises as `replicated_tables`."""
        found: dict[str, dict[str, int]] = {}
        for row in await self._rows(base, login, PARTS):
            found.setdefault(row["table_name"], {})[row["part"]] = int(row["size"])
        return found

    async def restore(self, base: str, login: Login, table: str) -> None:
        """Register a table whose registration in ZooKeeper was removed, from its local parts. Raises Permanent where
        the server does not know the statement (before 21.8)."""
        self._fence.check()
        database, _, name = table.partition(".")
        await self._ask(base, login, f"SYSTEM RESTORE REPLICA `{database}`.`{name}`", STATEMENT_SECONDS)

    async def close(self) -> None:
        """End its connections."""
        if self._session is not None:
            await self._session.close()

    async def _rows(self, base: str, login: Login, query: str) -> list[dict[str, Any]]:
        text = await self._ask(base, login, f"{query} FORMAT JSONEachRow", SECONDS)
        try:
            return [json.loads(line) for line in text.splitlines() if line]
        except ValueError as error:
            raise Retryable(f"{base} answers something that is no JSON", after=2.0) from error

    async def _ask(self, base: str, login: Login, statement: str, seconds: float) -> str:
        if self._session is None:
            self._session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=64, ttl_dns_cache=5))
        headers = {"X-ClickHouse-User": login.user, "X-ClickHouse-Key": login.password}
        tls = trust(base, login.authorities)
        try:
            async with (
                asyncio.timeout(seconds),
                self._session.post(f"{base}/", headers=headers, data=statement.encode(), **tls) as answer,
            ):
                text = (await answer.content.read(LARGEST_ANSWER)).decode(errors="replace")
                while not answer.content.at_eof() and len(text) < LARGEST_ANSWER:
                    text += (await answer.content.read(LARGEST_ANSWER)).decode(errors="replace")
        except UNREACHABLE as error:
            raise Retryable(f"ClickHouse at {base} does not answer: {type(error).__name__}", after=2.0) from error
        if answer.status == 200:
            return text
        raise Permanent(
            f"ClickHouse at {base} refused: {text.strip()[:500]} ({answer.status})",
            reason="Refused",
            code=answer.status,
        )
