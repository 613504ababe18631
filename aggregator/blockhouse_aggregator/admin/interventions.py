"""`/drain` and `/streams/.../acceptance`: what a person does to a running aggregator by hand."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from aiohttp import web

from blockhouse.contract import interventions as contract
from blockhouse.serving import body, respond, route
from blockhouse.streams import StreamId
from blockhouse_aggregator.admin.answered import answered
from blockhouse_aggregator.runtime.process.acceptances import Acceptances
from blockhouse_aggregator.runtime.process.draining import Draining


class InterventionRoutes:
    """`draining` and `acceptances` raise Retryable while the aggregator starts; `owned` is how many streams it owns and
    how many blocks of these are in flight."""

    def __init__(
        self,
        draining: Callable[[], Draining],
        acceptances: Callable[[], Acceptances],
        owned: Callable[[], tuple[int, int]],
    ) -> None:
        self._draining = draining
        self._acceptances = acceptances
        self._owned = owned

    def all(self) -> Iterable[web.RouteDef]:
        yield route(contract.DRAIN_STATE, answered(self._state))
        yield route(contract.DRAIN, answered(self._drain))
        yield route(contract.RESUME, answered(self._resume))
        yield route(contract.ACCEPT, answered(self._accept))

    async def _state(self, _: web.Request) -> web.Response:
        asked = self._draining().asked
        streams, in_flight = self._owned()
        state = contract.DrainState(
            drained=asked is not None,
            by=asked.by if asked is not None else "",
            why=asked.why if asked is not None else "",
            since_ms=asked.since_ms if asked is not None else 0,
            streams=streams,
            in_flight=in_flight,
        )
        return respond(state)

    async def _drain(self, request: web.Request) -> web.Response:
        asked = await body(request, contract.DrainRequest)
        await self._draining().drain(asked.by, asked.why)
        return await self._state(request)

    async def _resume(self, request: web.Request) -> web.Response:
        asked = await body(request, contract.ResumeRequest)
        await self._draining().resume(asked.by)
        return await self._state(request)

    async def _accept(self, request: web.Request) -> web.Response:
        asked = await body(request, contract.AcceptRequest)
        acceptances, stream = self._acceptances(), _stream(request)
        if stream is None or not acceptances.owns(stream):
            raise web.HTTPNotFound(text="this aggregator does not own such a stream: ask its owner\n")
        return respond(await acceptances.accept(stream, asked))


def _stream(request: web.Request) -> StreamId | None:
    """None for a path that names no stream."""
    try:
        return StreamId.parse("/".join(request.match_info[part] for part in ("cluster", "topic", "partition")))
    except ValueError:
        return None
