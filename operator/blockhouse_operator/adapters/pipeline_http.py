"""What aggregators and verifiers answer over HTTP, as values, and what a rollout asks of aggregators.

The fence is asked before each request that changes anything. A pod that does not answer is an observation, not a
failure: one silent pod must never stop a reconcile.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import aiohttp

from blockhouse.errors import Blocked, BlockhouseError, Permanent, Retryable
from blockhouse_operator.adapters.fence import Fence
from blockhouse_operator.api.status import VerifierStatus
from blockhouse_operator.decide.seen import AggregatorSeen, Gap, StreamSeen, TableSeen

SECONDS = 5.0
DDL_SECONDS = 130.0
"""For statements, a little longer than the aggregator waits for its server."""
LARGEST_ANSWER = 8 << 20

Answer = TypeVar("Answer")
REFUSALS: Mapping[int, Callable[[str], BlockhouseError]] = {
    409: lambda text: Blocked(text, on="Conflict"),
    422: lambda text: Permanent(text, reason="InvalidDdl"),
}


class PipelineHttp:
    """One connection pool for every pod of every pipeline. `close` it."""

    def __init__(self, fence: Fence) -> None:
        self._fence = fence
        self._session: aiohttp.ClientSession | None = None

    async def aggregator(self, base: str, token: str) -> AggregatorSeen:
        """The answer of `/status` below `base`. Raises Retryable saying why there is none that can be understood."""
        return _understood(base, await self._get(f"{base}/status", token), aggregator_seen)

    async def verdict(self, base: str, token: str) -> VerifierStatus:
        """The answer of `/verdict` below `base`. Raises Retryable as `aggregator` does."""
        return _understood(base, await self._get(f"{base}/verdict", token), verifier_seen)

    async def gap(self, base: str, token: str, table: str, ddl: str) -> Gap:
        """What lies between the replica's table and its declaration. Raises Permanent for a DDL that cannot be used."""
        url = f"{base}/tables/{table}/difference"
        return _understood(base, await self._request("POST", url, token, {"ddl": ddl}, SECONDS), _gap)

    async def hold(self, base: str, token: str, table: str, rollout: str) -> None:
        """Hold the table in every stream of the shard. Raises Blocked while another rollout holds it."""
        await self._change("PUT", f"{base}/tables/{table}/hold", token, {"rollout": rollout})

    async def release(self, base: str, token: str, table: str, rollout: str) -> None:
        """End a hold; no error when it has ended. Raises Blocked as `hold` does."""
        await self._change("DELETE", f"{base}/tables/{table}/hold", token, {"rollout": rollout})

    async def apply(self, base: str, token: str, table: str, ddl: str, rollout: str, *, restart: bool = False) -> None:
        """Create the table at this replica, or add its columns, which with `restart` demands that the shard's
        aggregators restart. Raises Blocked naming what stands in the way."""
        body = {"ddl": ddl, "rollout": rollout, "restart": restart}
        await self._change("PUT", f"{base}/tables/{table}", token, body, DDL_SECONDS)

    async def restart(self, base: str, token: str, demand: int) -> None:
        """End the aggregator in order, unless it was started after this demand."""
        await self._change("POST", f"{base}/restart", token, {"number": demand})

    async def _change(
        self, method: str, url: str, token: str, body: Mapping[str, Any], seconds: float = SECONDS
    ) -> None:
        self._fence.check()
        await self._request(method, url, token, body, seconds)

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    async def _get(self, url: str, token: str) -> Any:
        return await self._request("GET", url, token, None, SECONDS)

    async def _request(self, method: str, url: str, token: str, body: Mapping[str, Any] | None, seconds: float) -> Any:
        if self._session is None:
            self._session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=64, ttl_dns_cache=5))
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        try:
            async with (
                asyncio.timeout(seconds),
                self._session.request(method, url, headers=headers, json=body) as answer,
            ):
                text = await answer.content.read(LARGEST_ANSWER)
                while not answer.content.at_eof() and len(text) < LARGEST_ANSWER:
                    text += await answer.content.read(LARGEST_ANSWER - len(text))
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise Retryable(f"{url} does not answer: {type(error).__name__}", after=2.0) from error
        if answer.status in REFUSALS:
            raise REFUSALS[answer.status](text.decode(errors="replace").strip()[:2000])
        if answer.status != 200:
            raise Retryable(f"{url} answers {answer.status} {answer.reason}", after=2.0, code=answer.status)
        try:
            return json.loads(text)
        except ValueError as error:
            raise Retryable(f"{url} answers something that is no JSON", after=2.0) from error


def _understood(base: str, content: Any, reader: Callable[[Any], Answer]) -> Answer:
    try:
        return reader(content)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise Retryable(
            f"{base} answers something unknown ({type(error).__name__}: {error}); is it a Blockhouse of this version?",
            after=5.0,
        ) from error


def aggregator_seen(content: Mapping[str, Any]) -> AggregatorSeen:
    """An aggregator's status page as a value. Raises KeyError or TypeError for anything else."""
    restart = content.get("restart") or {}
    return AggregatorSeen(
        ready=bool(content["ready"]),
        streams=tuple(_stream(stream) for stream in content["streams"]),
        suspended=bool(content.get("suspended", False)),
        restart_wanted=int(restart.get("wanted") or 0),
        restart_seen=int(restart.get("seen") or 0),
        clusters={name: str(state) for name, state in content["clusters"].items() if state != "ok"},
        tables=tuple(
            TableSeen(
                name=table["name"],
                revision=int(table["revision"]),
                held=bool(table["held"]),
                checked=table["held"] != "NotChecked",
                why=str(table["why"] or ""),
                hazards=tuple((hazard["reason"], hazard["text"]) for hazard in table.get("hazards", ())),
                rollout=str(table.get("rollout") or ""),
                held_since_ms=int(table.get("heldSinceMs") or 0),
            )
            for table in content["tables"]
        ),
    )


def _stream(content: Mapping[str, Any]) -> StreamSeen:
    stopped, counters = content.get("stopped") or {}, content.get("counters") or {}
    in_flight = content.get("inFlight") or ()
    busy = in_flight or content.get("lagging") or content.get("lag", 1)
    consumes = content["state"] == "CONSUME"
    return StreamSeen(
        name=content["stream"],
        phase=content["state"],
        drained=consumes and not busy,
        in_flight=frozenset(block["table"] for block in in_flight),
        cold=consumes and bool(busy) and _nothing_done(counters, in_flight),
        why=" ".join(str(stopped[part]) for part in ("reason", "message") if stopped.get(part)),
    )


def _nothing_done(counters: Mapping[str, int], in_flight: Sequence[Mapping[str, Any]]) -> bool:
    """No round has ended yet; or one has, and its blocks are the first and on their way. A table that waits for a
    decision has none there, or one with a reason."""
    if any(counters.get(done, 1) for done in ("blocks", "dead")):
        return False
    return not counters.get("rounds", 1) or (bool(in_flight) and not any(block.get("reason") for block in in_flight))


def _gap(content: Mapping[str, Any]) -> Gap:
    return Gap(bool(content["exists"]), tuple(content["added"]), tuple(content["refused"]))


def verifier_seen(content: Mapping[str, Any]) -> VerifierStatus:
    return VerifierStatus(
        verdict=content["verdict"],
        anomalies=content["anomalies"],
        streams=content["streams"],
        since=content.get("since") or "",
    )
