"""The aggregators of one shard over HTTP: what they show, and what a rollout asks of them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Self, TypeVar

import aiohttp

from blockhouse.admin_client import AdminAccess
from blockhouse.contract import rollouts
from blockhouse.contract.aggregator import STATUS, StatusPage
from blockhouse.contract.base import Answer, Endpoint, NotUnderstood, Request
from blockhouse.contract.rollouts import DifferenceAnswer
from blockhouse.errors import Blocked, BlockhouseError, Permanent, Retryable
from blockhouse.http_errors import no_answer

SECONDS = 5.0
DDL_SECONDS = 130.0
"""For statements, a little longer than the aggregator waits for its server."""
AnswerT = TypeVar("AnswerT", bound=Answer)


class Aggregators:
    """Those of one shard, by address as it was given. An `async with` block; every request may be repeated."""

    def __init__(self, addresses: Sequence[str], access: AdminAccess) -> None:
        self.addresses = tuple(dict.fromkeys(addresses))
        self._access = access

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(headers=self._access.headers)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._session.close()

    async def pages(self) -> Mapping[str, StatusPage]:
        """The status page of each. Raises Retryable naming the one that does not answer."""
        found = await asyncio.gather(*(self._ask(address, STATUS, StatusPage) for address in self.addresses))
        return dict(zip(self.addresses, found, strict=True))

    async def differences(self, table: str, ddl: str) -> Mapping[str, DifferenceAnswer]:
        """What is between each one's table and the declaration. Raises as `pages`; Permanent for DDL that cannot be
        used."""
        body = rollouts.DifferenceRequest(ddl=ddl)
        asked = (self._ask(a, rollouts.DIFFERENCE, DifferenceAnswer, body, table=table) for a in self.addresses)
        return dict(zip(self.addresses, await asyncio.gather(*asked), strict=True))

    async def hold(self, table: str, rollout: str) -> None:
        """Hold the table in every stream of the shard. Raises Blocked while another rollout holds it."""
        body = rollouts.HoldRequest(rollout=rollout)
        await self._ask(self.addresses[0], rollouts.HOLD, rollouts.HoldAnswer, body, table=table)

    async def release(self, table: str, rollout: str) -> None:
        """End the pause, which is the shard's: by the first aggregator that answers. No error when it has ended."""
        body = rollouts.HoldRequest(rollout=rollout)
        for address in self.addresses:
            try:
                await self._ask(address, rollouts.RELEASE, rollouts.ReleaseAnswer, body, table=table)
                return
            except Retryable:
                if address == self.addresses[-1]:
                    raise

    async def apply(self, address: str, table: str, ddl: str, rollout: str) -> None:
        """Create the table at one replica, or add the columns that it lacks on all.

        Raises Blocked naming what stands in the way.
        """
        body = rollouts.ApplyRequest(ddl=ddl, rollout=rollout)
        await self._ask(address, rollouts.APPLY, DifferenceAnswer, body, DDL_SECONDS, table=table)

    async def _ask(
        self,
        address: str,
        endpoint: Endpoint,
        answer: type[AnswerT],
        body: Request | None = None,
        seconds: float = SECONDS,
        **parameters: str,
    ) -> AnswerT:
        url = self._access.url(address) + endpoint.at(**parameters)
        sent = body.written() if body is not None else None
        try:
            async with (
                asyncio.timeout(seconds),
                self._session.request(endpoint.method, url, json=sent, **self._access.trust(address)) as found,
            ):
                text = await found.text()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            why = no_answer(error, seconds)
            raise Retryable(f"aggregator {address} does not answer: {why}", after=1.0) from error
        if found.status != 200:
            raise _refused(address, found.status, text.strip())
        try:
            return answer.parse(text)
        except NotUnderstood as error:
            text = f"aggregator {address} answers otherwise than expected: {error}"
            raise Permanent(text, reason="NotUnderstood") from error


def _refused(address: str, status: int, text: str) -> BlockhouseError:
    match status:
        case 401:
            return Permanent(f"aggregator {address} wants a token, or another one: --token-file", reason="Unauthorized")
        case rollouts.CONFLICT:
            return Blocked(f"aggregator {address}: {text}", reason="Conflict")
        case rollouts.UNUSABLE:
            return Permanent(f"aggregator {address}: {text}", reason="InvalidDdl")
        case 503:
            return Retryable(f"aggregator {address}: {text}", after=1.0)
        case _:  # open: HTTP has more codes than the contract
            return Permanent(f"aggregator {address} answers {status}: {text}", reason="Refused")
