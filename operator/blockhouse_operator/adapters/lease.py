"""Leader election by a Lease, with the election of the Kubernetes client library.

The library renews; this module reports to the fence when each renewal was asked for, bounds every request in time and
turns a failed connection into a renewal that failed, so that the library's own deadline decides.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import aiohttp
import structlog
from kubernetes.aio.client import ApiClient, V1Lease, V1LeaseSpec, V1ObjectMeta
from kubernetes.aio.client.exceptions import ApiException
from kubernetes.aio.leaderelection.electionconfig import Config
from kubernetes.aio.leaderelection.leaderelection import LeaderElection
from kubernetes.aio.leaderelection.leaderelectionrecord import LeaderElectionRecord
from kubernetes.aio.leaderelection.resourcelock.leaselock import LeaseLock

from blockhouse.http_errors import no_answer
from blockhouse_operator.adapters.fence import Fence

log = structlog.get_logger(__name__)

LEASE_SECONDS = 15
RENEW_SECONDS = 10
RETRY_SECONDS = 2
REQUEST_SECONDS = 5.0

_FAILURES = (aiohttp.ClientError, TimeoutError, OSError)


class FencedLock(LeaseLock):
    """The library's lock on a Lease; a renewal that succeeded moves the fence."""

    def __init__(self, name: str, namespace: str, identity: str, api: ApiClient, fence: Fence) -> None:
        super().__init__(name, namespace, identity, api)
        self._fence = fence

    async def get(
        self, name: str, namespace: str
    ) -> tuple[bool, LeaderElectionRecord] | tuple[bool, Exception] | tuple[bool, None]:
        """(True, record), (False, error), as the library expects; an error after REQUEST_SECONDS."""
        try:
            async with asyncio.timeout(REQUEST_SECONDS):
                return await super().get(name, namespace)
        except _FAILURES as error:
            return False, ApiException(status=0, reason=self._no_answer(error))

    async def create(self, name: str, namespace: str, election_record: LeaderElectionRecord) -> bool:
        """Whether the Lease was created; renews the fence then."""
        # Not the library's own: its `create` asks for a pretty answer in a way that its API client refuses (37.0.2).
        return await self._renew(self._create(name, namespace, election_record))

    async def _create(self, name: str, namespace: str, record: LeaderElectionRecord) -> bool:
        lease = V1Lease(metadata=V1ObjectMeta(name=name), spec=self.update_lease(record))
        try:
            await self.api_instance.create_namespaced_lease(namespace, lease)
        except ApiException as error:
            log.warning("lease_not_created", error=f"{error.status} {error.reason}")
            return False
        return True

    async def update(self, name: str, namespace: str, updated_record: LeaderElectionRecord) -> bool:
        """Whether the Lease was renewed; renews the fence then."""
        return await self._renew(super().update(name, namespace, updated_record))

    async def _renew(self, request: Awaitable[bool]) -> bool:
        asked_at = self._fence.now()
        try:
            async with asyncio.timeout(REQUEST_SECONDS):
                done = await request
        except _FAILURES as error:
            log.warning("lease_not_renewed", error=self._no_answer(error))
            return False
        if done:
            self._fence.renewed(asked_at)
        return done

    async def release(self) -> None:
        """Give the Lease up now, if it is still ours, so that the next leader need not wait for it to expire."""
        if not self._fence.open:
            return
        self._fence.shut()
        found, record = await self.get(self.name, self.namespace)
        held = isinstance(record, LeaderElectionRecord) and record.holder_identity == self.identity
        if not found or not held or self.lease_reference is None:
            return
        self.lease_reference.spec = V1LeaseSpec(holder_identity="", lease_duration_seconds=1)
        try:
            async with asyncio.timeout(REQUEST_SECONDS):
                await self.api_instance.replace_namespaced_lease(self.name, self.namespace, self.lease_reference)
        except ApiException as error:
            log.warning("lease_not_released", error=f"{error.status} {error.reason}")
        except _FAILURES as error:
            log.warning("lease_not_released", error=self._no_answer(error))

    def _no_answer(self, error: BaseException) -> str:
        """For example `https://10.0.0.1:443: connection refused`; the library logs it as it is."""
        server = self.api_instance.api_client.configuration.host
        return f"{server}: {no_answer(error, REQUEST_SECONDS)}"


async def lead(lock: FencedLock, fence: Fence, work: Callable[[], Awaitable[None]]) -> None:
    """Wait to be the leader, then do `work` for as long as it is one; returns when leadership or work ended.

    Raises what `work` raised. The caller ends the process then: the state of a former leader is never used again.
    """
    ended = asyncio.Event()
    working: list[asyncio.Task[None]] = []

    async def started() -> None:
        log.info("leading", lease=f"{lock.namespace}/{lock.name}", identity=lock.identity)
        working.append(asyncio.ensure_future(work()))
        working[0].add_done_callback(lambda _: ended.set())
        await ended.wait()

    election = asyncio.create_task(LeaderElection(_config(lock, started)).run())
    finished = asyncio.create_task(ended.wait())
    try:
        await asyncio.wait({election, finished}, return_when=asyncio.FIRST_COMPLETED)
        if not ended.is_set():
            log.error("leadership_lost", lease=f"{lock.namespace}/{lock.name}", identity=lock.identity)
    finally:
        await _stop(election, finished, *working)
        await lock.release()
        fence.shut()
    for task in (*working, election):
        if not task.cancelled():
            task.result()


def _config(lock: FencedLock, started: Callable[[], Coroutine[Any, Any, None]]) -> Config:
    return Config(
        lock,
        lease_duration=LEASE_SECONDS,
        renew_deadline=RENEW_SECONDS,
        retry_period=RETRY_SECONDS,
        onstarted_leading=started,
        onstopped_leading=None,  # type: ignore[arg-type]  # the library allows it, its annotation does not
    )


async def _stop(*tasks: asyncio.Future[None] | asyncio.Task[Any]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
