"""Fixed rates over HTTP, while `blockhouse topics throttle run` follows them. Paths and keys are those of the contract.

It listens on loopback unless a token is set. Whatever is changed is in the record before it is answered.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TypeVar

import typer
from aiohttp import web
from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric

from blockhouse.config.pipeline import Admin
from blockhouse.config.units import time_span
from blockhouse.contract import throttle as contract
from blockhouse.errors import Permanent, Retryable
from blockhouse.fleet.throttle_context import Tally
from blockhouse.fleet.throttle_figures import ThrottleFigures, throttle_figures
from blockhouse.fleet.throttle_store import FileStore
from blockhouse.fleet.throttling import Throttler
from blockhouse.serving import Answer, HttpServer, body, respond, route
from blockhouse.throttle.model import Override, Overrides
from blockhouse.throttle.report import Row
from blockhouse.throttle.units import rate_of

Result = TypeVar("Result")
MB = 1_000_000
START_SECONDS = 10.0


@dataclass
class Running:
    """What the server shares with the command that throttles. `store` is the server's own, on the command's file."""

    store: FileStore
    changed: Callable[[], None]
    """Called after each change, so that it counts at once."""
    rows: Callable[[], tuple[Row, ...]] = tuple
    tally: Tally = field(default_factory=Tally)
    wall: Callable[[], float] = time.time


class ThrottleServer(HttpServer):
    """/throttle, /throttle/BROKER, kafka-kit's paths, probes and metrics."""

    def __init__(self, config: Admin, running: Running) -> None:
        registry = CollectorRegistry(auto_describe=False)
        registry.register(_Figures(running))
        super().__init__(config.host, config.port, registry, token=config.token.read if config.token else None)
        self._running = running
        self._alone = asyncio.Lock()

    def health(self) -> Answer:
        """Always good: what does not answer Kafka tries again by itself."""
        return Answer(True, "ok")

    def readiness(self) -> Answer:
        return Answer(True, "throttling")

    def routes(self) -> Iterable[web.RouteDef]:
        """Fixed paths before those with a broker: the first that fits answers."""
        yield route(contract.SHOW, self._show)
        yield route(contract.FIX, self._fix)
        yield route(contract.FORGET, self._forget)
        yield route(contract.KIT_FIX, self._kit_fix)
        yield route(contract.KIT_FORGET, self._forget)
        yield route(contract.KIT_FORGET_BROKER, self._kit_forget)
        yield route(contract.SHOW_BROKER, self._show_one)
        yield route(contract.FIX_BROKER, self._fix)
        yield route(contract.FORGET_BROKER, self._forget)
        yield route(contract.KIT_FIX_BROKER, self._kit_fix)

    async def _show(self, _: web.Request) -> web.Response:
        overrides = await self._ask(self._running.store.overrides)
        everywhere = overrides.everywhere
        return respond(
            contract.ThrottleAnswer(
                cluster=self._running.store.cluster,
                everywhere=_answer(everywhere) if everywhere is not None else None,
                brokers={str(id): _answer(found) for id, found in sorted(overrides.brokers.items())},
                rates=tuple(map(_rate, self._running.rows())),
            )
        )

    async def _show_one(self, request: web.Request) -> web.Response:
        broker = _broker(request)
        found = (await self._ask(self._running.store.overrides)).brokers.get(broker)
        if found is None:
            raise web.HTTPNotFound(text=f"no rate of broker {broker} is fixed\n")
        return respond(_answer(found))

    async def _fix(self, request: web.Request) -> web.Response:
        given = await body(request, contract.OverrideRequest)
        try:
            until = self._running.wall() + time_span(given.expires) if given.expires else None
            override = Override(rate_of(given.rate), given.auto_remove, until)
        except ValueError as error:
            raise web.HTTPBadRequest(text=f"{error}\n") from None
        return await self._fixed(request, override)

    async def _kit_fix(self, request: web.Request) -> web.Response:
        rate, remove = request.query.get("rate", ""), request.query.get("autoremove", "false").lower()
        if not rate.isdecimal() or int(rate) == 0:
            raise web.HTTPBadRequest(text="rate param must be specified, as an integer above 0: MB/s\n")
        if remove not in ("true", "false"):
            raise web.HTTPBadRequest(text="autoremove param must be a bool\n")
        return await self._fixed(request, Override(int(rate) * MB, remove == "true"))

    async def _fixed(self, request: web.Request, override: Override) -> web.Response:
        broker = _broker(request) if "broker" in request.match_info else None
        await self._ask(lambda: self._running.store.override(broker, override))
        self._running.changed()
        return respond(_answer(override))

    async def _forget(self, request: web.Request) -> web.Response:
        broker = _broker(request) if "broker" in request.match_info else None
        return await self._forgotten(lambda overrides: [broker] if _is_fixed(overrides, broker) else [])

    async def _kit_forget(self, request: web.Request) -> web.Response:
        if request.match_info["broker"] == "all":
            return await self._forgotten(lambda overrides: list(overrides.brokers))
        return await self._forget(request)

    async def _forgotten(self, chosen: Callable[[Overrides], list[int | None] | list[int]]) -> web.Response:
        store = self._running.store

        def forget() -> int:
            with store.exclusive():
                brokers = chosen(store.overrides())
                for broker in brokers:
                    store.forget_override(broker)
            return len(brokers)

        count = await self._ask(forget)
        if not count:
            raise web.HTTPNotFound(text="no such rate is fixed\n")
        self._running.changed()
        return respond(contract.ForgottenAnswer(forgotten=count))

    async def _ask(self, work: Callable[[], Result]) -> Result:
        """Use the record, in a thread: the command may have it for as long as an interval's work takes."""
        async with self._alone:
            try:
                return await asyncio.to_thread(work)
            except (Retryable, Permanent) as error:
                raise web.HTTPServiceUnavailable(text=f"{error}\n") from None


class _Figures:
    def __init__(self, running: Running) -> None:
        self._running = running

    def collect(self) -> Iterator[Metric]:
        running = self._running
        found = ThrottleFigures(running.rows(), running.tally, running.store.overrides())
        yield from throttle_figures({(running.store.cluster,): found}, ("cluster",))


class Pause:
    """Between two intervals of a command: cut short by a change, or when the command is to end."""

    def __init__(self) -> None:
        self._over = threading.Event()
        self._stopped = False

    def end(self) -> None:
        """The next interval begins at once."""
        self._over.set()

    def stop(self) -> None:
        """No further interval."""
        self._stopped = True
        self._over.set()

    def wait(self, seconds: float) -> bool:
        """Returns whether the command is to end."""
        self._over.wait(seconds)
        self._over.clear()
        return self._stopped


@contextlib.contextmanager
def answering(
    listen: Admin | None, store: FileStore, throttler: Throttler, changed: Callable[[], None]
) -> Iterator[None]:
    """Serve in a thread beside a command; nothing when `listen` is None. `store` is for this alone. Raises Permanent
    when the port is taken."""
    if listen is None:
        yield
        return
    server = ThrottleServer(listen, Running(store, changed, lambda: throttler.rows, throttler.tally))
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="http", daemon=True)
    thread.start()
    try:
        asyncio.run_coroutine_threadsafe(server.start(), loop).result(START_SECONDS)
        typer.echo(f"listening on http://{listen.host}:{server.port}", err=True)
        yield
    finally:
        asyncio.run_coroutine_threadsafe(server.stop(), loop).result(START_SECONDS)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def _broker(request: web.Request) -> int:
    text = request.match_info["broker"]
    if not text.isdecimal():
        raise web.HTTPNotFound(text=f"{text!r} is no broker: give its id\n")
    return int(text)


def _is_fixed(overrides: Overrides, broker: int | None) -> bool:
    return overrides.everywhere is not None if broker is None else broker in overrides.brokers


def _answer(override: Override) -> contract.OverrideAnswer:
    until = override.expires_at
    at = datetime.fromtimestamp(until, UTC).strftime("%Y-%m-%dT%H:%M:%SZ") if until is not None else None
    return contract.OverrideAnswer(rate=override.rate, auto_remove=override.auto_remove, expires_at=at)


def _rate(row: Row) -> contract.BrokerRate:
    return contract.BrokerRate(
        broker=row.broker,
        role=row.role.value,
        rate=row.rate,
        present=row.in_force,
        floor=row.floor,
        capacity=row.capacity,
        other=row.other,
        moved=row.moved,
        remaining=row.remaining,
        eta=None if row.eta == float("inf") else row.eta,
        stalled=row.stalled,
        why=row.why,
    )
