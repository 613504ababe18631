"""What people, Prometheus and the operator ask a running mirror. It listens on loopback unless a token is set."""

from __future__ import annotations

from collections.abc import Iterable

from aiohttp import web

from blockhouse.contract.mirror import REBALANCE, STATUS, Requested
from blockhouse.serving import Answer, HttpServer, respond, route
from blockhouse_mirror.runtime.driver import Driver
from blockhouse_mirror.runtime.status import registry_of, status_of


class MirrorServer(HttpServer):
    """/healthz, /readyz, /metrics, /status and /rebalance."""

    def __init__(self, driver: Driver) -> None:
        admin = driver.mirrored.config.admin
        token = admin.token.read if admin.token else None
        super().__init__(admin.host, admin.port, registry_of(driver), token=token, tls=admin.tls)
        self._driver = driver

    def health(self) -> Answer:
        """Always healthy: while it answers, a restart would help nothing."""
        return Answer(True, "ok")

    def readiness(self) -> Answer:
        """Ready once topics are known; what stands still is in the status, and restarting would not help it."""
        if self._driver.mirrored.discovery is None:
            return Answer(False, "; ".join(self._driver.mirrored.errors.values()) or "looking for topics")
        return Answer(True, "ready")

    def routes(self) -> Iterable[web.RouteDef]:
        """The routes beside those of every `HttpServer`."""
        return route(STATUS, self._status), route(REBALANCE, self._rebalance)

    async def _status(self, _: web.Request) -> web.Response:
        return respond(status_of(self._driver))

    async def _rebalance(self, _: web.Request) -> web.Response:
        self._driver.request_rebalance()
        return respond(Requested(requested=True))
