"""What aggregators and verifiers answer over HTTP, as values. Nothing is asked of them but to tell.

A pod that does not answer is an observation, not a failure: one silent pod must never stop a reconcile.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import aiohttp

from blockhouse.errors import Retryable
from blockhouse_operator.api.status import VerifierStatus
from blockhouse_operator.decide.seen import AggregatorSeen, StreamSeen, TableSeen

SECONDS = 5.0
LARGEST_ANSWER = 8 << 20

Answer = TypeVar("Answer")


class PipelineHttp:
    """One connection pool for every pod of every pipeline. `close` it."""

    def __init__(self) -> None:
        self._session: aiohttp.ClientSession | None = None

    async def aggregator(self, base: str, token: str) -> AggregatorSeen:
        """The answer of `/status` below `base`. Raises Retryable saying why there is none that can be understood."""
        return _understood(base, await self._get(f"{base}/status", token), aggregator_seen)

    async def verdict(self, base: str, token: str) -> VerifierStatus:
        """The answer of `/verdict` below `base`. Raises Retryable as `aggregator` does."""
        return _understood(base, await self._get(f"{base}/verdict", token), verifier_seen)

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    async def _get(self, url: str, token: str) -> Any:
        if self._session is None:
            self._session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=64, ttl_dns_cache=5))
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        try:
            async with asyncio.timeout(SECONDS), self._session.get(url, headers=headers) as answer:
                text = await answer.content.read(LARGEST_ANSWER)
                while not answer.content.at_eof() and len(text) < LARGEST_ANSWER:
                    text += await answer.content.read(LARGEST_ANSWER - len(text))
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise Retryable(f"{url} does not answer: {type(error).__name__}", after=2.0) from error
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
    return AggregatorSeen(
        ready=bool(content["ready"]),
        streams=tuple(_stream(stream) for stream in content["streams"]),
        clusters={name: str(state) for name, state in content["clusters"].items() if state != "ok"},
        tables=tuple(
            TableSeen(
                name=table["name"],
                revision=int(table["revision"]),
                held=bool(table["held"]),
                why=str(table["why"] or ""),
                hazards=tuple((hazard["reason"], hazard["text"]) for hazard in table.get("hazards", ())),
            )
            for table in content["tables"]
        ),
    )


def _stream(content: Mapping[str, Any]) -> StreamSeen:
    stopped = content.get("stopped") or {}
    busy = content.get("inFlight") or content.get("lagging") or content.get("lag", 1)
    return StreamSeen(
        name=content["stream"],
        phase=content["state"],
        drained=content["state"] == "CONSUME" and not busy,
        why=" ".join(str(stopped[part]) for part in ("reason", "text", "detail") if stopped.get(part)),
    )


def verifier_seen(content: Mapping[str, Any]) -> VerifierStatus:
    return VerifierStatus(
        verdict=content["verdict"],
        anomalies=content["anomalies"],
        streams=content["streams"],
        since=content.get("since") or "",
    )
