"""What aggregators, verifiers and mirrors answer over HTTP, as values, and what is asked of them.

Paths and keys are those of `blockhouse.contract`. The fence is asked before each request that changes anything. A pod
that does not answer is an observation, not a failure: one silent pod must never stop a reconcile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeVar

import aiohttp

from blockhouse.contract import rollouts
from blockhouse.contract.aggregator import NOT_CHECKED, STATUS, StatusPage, StreamStatus, TableStatus
from blockhouse.contract.base import Answer, Endpoint, NotUnderstood, Request
from blockhouse.contract.decisive import cold
from blockhouse.contract.mirror import REBALANCE, MirrorStatus, Requested
from blockhouse.contract.mirror import STATUS as MIRROR_STATUS
from blockhouse.contract.verifier import VERDICT, Verdict
from blockhouse.errors import Blocked, BlockhouseError, Permanent, Retryable
from blockhouse_operator.adapters.endpoints import UNREACHABLE
from blockhouse_operator.adapters.fence import Fence
from blockhouse_operator.adapters.trust import trust
from blockhouse_operator.api.status import VerifierStatus
from blockhouse_operator.decide.seen import AggregatorSeen, Gap, StreamSeen, TableSeen

SECONDS = 5.0
DDL_SECONDS = 130.0
"""For statements, a little longer than the aggregator waits for its server."""
LARGEST_ANSWER = 8 << 20
NOT_MODIFIED, UNAUTHORIZED = 304, 401

AnswerT = TypeVar("AnswerT", bound=Answer)
REFUSALS: Mapping[int, Callable[[str], BlockhouseError]] = {
    rollouts.CONFLICT: lambda text: Blocked(text, reason="Conflict"),
    rollouts.UNUSABLE: lambda text: Permanent(text, reason="InvalidDdl"),
}


@dataclass(frozen=True, slots=True)
class AdminLogin:
    """What an admin API is asked with: its token, or several, each on a line; and the authorities (PEM) by which it is
    known where it speaks TLS, the system's if empty."""

    tokens: str = ""
    authorities: str = ""

    def __repr__(self) -> str:
        return "AdminLogin(...)"


class NoAnswer(Retryable):
    """A pod did not answer, in time or at all."""


class _Reply(NamedTuple):
    text: bytes | None
    """None where it is as in the answer that had this tag."""
    tag: str


class PipelineHttp:
    """One connection pool for every pod of every pipeline. A pod has `seconds` to report. `close` it."""

    def __init__(self, fence: Fence, *, seconds: float = SECONDS) -> None:
        self._fence = fence
        self._seconds = seconds
        self._session: aiohttp.ClientSession | None = None
        self._known: dict[str, tuple[str, AggregatorSeen]] = {}
        self._silent: set[str] = set()
        """URLs that did not answer when they were last asked for what they report."""

    async def aggregator(self, base: str, login: AdminLogin, *, whole: bool = True) -> AggregatorSeen:
        """The status page below `base`. Raises Retryable with why there is none that can be understood.

        Not `whole`: the former answer where the aggregator confirms that nothing else has changed than whether streams
        are drained, and which blocks are in flight of tables that no rollout holds; no stream is called drained then.
        """
        tag, known = ("", None) if whole else self._known.get(base, ("", None))
        reply = await self._look(base, login, STATUS, tag)
        if reply.text is None and known is not None:
            return known
        seen = aggregator_seen(_understood(StatusPage, base + STATUS.path, reply.text or b""))
        lasting = _without_drained(seen)
        self._known.pop(base, None)
        if reply.tag:
            self._known[base] = (reply.tag, lasting)
        return seen if whole else lasting

    async def verdict(self, base: str, login: AdminLogin) -> VerifierStatus:
        """The verdict below `base`. Raises Retryable as `aggregator` does."""
        reply = await self._look(base, login, VERDICT)
        return verifier_seen(_understood(Verdict, base + VERDICT.path, reply.text or b""))

    async def mirror(self, base: str, login: AdminLogin) -> MirrorStatus:
        """The status of the mirror below `base`. Raises Retryable as `aggregator` does."""
        reply = await self._look(base, login, MIRROR_STATUS)
        return _understood(MirrorStatus, base + MIRROR_STATUS.path, reply.text or b"")

    async def rebalance(self, base: str, login: AdminLogin) -> None:
        """Ask the mirror to make its tasks even. Raises Retryable when it does not take the request."""
        self._fence.check()
        await self._ask(base, login, REBALANCE, Requested)

    async def gap(self, base: str, login: AdminLogin, table: str, ddl: str) -> Gap:
        """What lies between the replica's table and its declaration. Raises Permanent for a DDL that cannot be used."""
        body = rollouts.DifferenceRequest(ddl=ddl)
        found = await self._ask(base, login, rollouts.DIFFERENCE, rollouts.DifferenceAnswer, body, table=table)
        return Gap(found.exists, found.added, found.refused)

    async def hold(self, base: str, login: AdminLogin, table: str, rollout: str) -> None:
        """Hold the table in every stream of the shard. Raises Blocked while another rollout holds it."""
        self._fence.check()
        body = rollouts.HoldRequest(rollout=rollout)
        await self._ask(base, login, rollouts.HOLD, rollouts.HoldAnswer, body, table=table)

    async def release(self, base: str, login: AdminLogin, table: str, rollout: str) -> None:
        """End a pause; no error when it has ended. Raises Blocked as `hold` does."""
        self._fence.check()
        body = rollouts.HoldRequest(rollout=rollout)
        await self._ask(base, login, rollouts.RELEASE, rollouts.ReleaseAnswer, body, table=table)

    async def apply(
        self, base: str, login: AdminLogin, table: str, ddl: str, rollout: str, *, restart: bool = False
    ) -> None:
        """Create the table at this replica, or add its columns, which with `restart` demands that the shard's
        aggregators restart. Raises Blocked naming what stands in the way."""
        self._fence.check()
        body = rollouts.ApplyRequest(ddl=ddl, rollout=rollout, restart=restart)
        await self._ask(base, login, rollouts.APPLY, rollouts.DifferenceAnswer, body, DDL_SECONDS, table=table)

    async def restart(self, base: str, login: AdminLogin, demand: int) -> None:
        """End the aggregator in order, unless it was started after this demand."""
        self._fence.check()
        body = rollouts.RestartRequest(number=demand)
        await self._ask(base, login, rollouts.RESTART, rollouts.RestartAnswer, body)

    async def close(self) -> None:
        """Close every connection."""
        if self._session is not None:
            await self._session.close()

    async def _look(self, base: str, login: AdminLogin, endpoint: Endpoint, tag: str = "") -> _Reply:
        """What a pod reports of itself. One that is not known to be silent is asked a second time: a moment in which
        its node is busy must not change a condition. One that is silent takes that time once."""
        url = base + endpoint.path
        if url not in self._silent:
            with suppress(NoAnswer):
                return await self._request(endpoint.method, url, login, seconds=self._seconds, tag=tag)
        try:
            reply = await self._request(endpoint.method, url, login, seconds=self._seconds, tag=tag)
        except NoAnswer:
            self._silent.add(url)
            raise
        self._silent.discard(url)
        return reply

    async def _ask(
        self,
        base: str,
        login: AdminLogin,
        endpoint: Endpoint,
        answer: type[AnswerT],
        body: Request | None = None,
        seconds: float = SECONDS,
        **parameters: str,
    ) -> AnswerT:
        content = body.written() if body is not None else None
        url = base + endpoint.at(**parameters)
        reply = await self._request(endpoint.method, url, login, content, seconds)
        return _understood(answer, url, reply.text or b"")

    async def _request(
        self,
        method: str,
        url: str,
        login: AdminLogin,
        body: Mapping[str, Any] | None = None,
        seconds: float = SECONDS,
        tag: str = "",
    ) -> _Reply:
        """The next token is tried where one is not accepted."""
        first, _, others = login.tokens.partition("\n")
        try:
            return await self._send(method, url, replace(login, tokens=first), body, seconds, tag)
        except Retryable as error:
            if error.code != UNAUTHORIZED or not others:
                raise
        return await self._request(method, url, replace(login, tokens=others), body, seconds, tag)

    async def _send(
        self, method: str, url: str, login: AdminLogin, body: Mapping[str, Any] | None, seconds: float, tag: str
    ) -> _Reply:
        """With the one token of `login`."""
        if self._session is None:
            self._session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=64, ttl_dns_cache=5))
        headers = {"Authorization": f"Bearer {login.tokens}"} if login.tokens else {}
        tls = trust(url, login.authorities)
        if tag:
            headers["If-None-Match"] = tag
        try:
            async with (
                asyncio.timeout(seconds),
                self._session.request(method, url, headers=headers, json=body, **tls) as answer,
            ):
                text = await answer.content.read(LARGEST_ANSWER)
                while not answer.content.at_eof() and len(text) < LARGEST_ANSWER:
                    text += await answer.content.read(LARGEST_ANSWER - len(text))
        except UNREACHABLE as error:
            raise NoAnswer(f"{url} does not answer: {type(error).__name__}", after=2.0) from error
        if answer.status in REFUSALS:
            raise REFUSALS[answer.status](text.decode(errors="replace").strip()[:2000])
        if tag and answer.status == NOT_MODIFIED:
            return _Reply(None, tag)
        if answer.status != 200:
            raise Retryable(f"{url} answers {answer.status} {answer.reason}", after=2.0, code=answer.status)
        return _Reply(text, answer.headers.get("ETag", ""))


def _understood(kind: type[AnswerT], url: str, text: bytes) -> AnswerT:
    try:
        return kind.parse(text)
    except NotUnderstood as error:
        advice = "is it a Blockhouse, and one that this operator knows?"
        raise Retryable(f"{url} answers something unknown ({error}); {advice}", after=5.0) from error


def aggregator_seen(page: StatusPage) -> AggregatorSeen:
    """What the operator decides by, of an aggregator's status page."""
    return AggregatorSeen(
        ready=page.ready,
        streams=tuple(_stream(stream) for stream in page.streams),
        suspended=page.suspended,
        restart_demanded=page.restart.demanded,
        restart_seen=page.restart.seen,
        clusters=page.cluster_errors,
        tables=tuple(_table(table) for table in page.tables),
    )


def _without_drained(seen: AggregatorSeen) -> AggregatorSeen:
    """What stays so while the digest of the status does: more may be produced to a drained stream at any moment."""
    return replace(seen, streams=tuple(replace(stream, drained=False) for stream in seen.streams))


def _table(table: TableStatus) -> TableSeen:
    return TableSeen(
        name=table.name,
        schema_revision=table.revision,
        unavailable=bool(table.held),
        checked=table.held != NOT_CHECKED,
        why=table.why,
        hazards=tuple((hazard.reason, hazard.text) for hazard in table.hazards),
        rollout=table.rollout,
        paused_since_ms=table.held_since_ms,
        as_declared=table.as_declared,
    )


def _stream(stream: StreamStatus) -> StreamSeen:
    stopped = stream.stopped
    return StreamSeen(
        name=stream.stream,
        phase=stream.state,
        drained=stream.drained,
        in_flight=frozenset(block.table for block in stream.blocks),
        cold=cold(stream),
        why=" ".join(text for text in (stopped.reason, stopped.message) if text) if stopped is not None else "",
    )


def verifier_seen(verdict: Verdict) -> VerifierStatus:
    """What the operator reports of a verdict."""
    return VerifierStatus(
        verdict=verdict.verdict,
        anomalies=verdict.anomalies,
        streams=verdict.streams,
        since=verdict.since or "",
    )
