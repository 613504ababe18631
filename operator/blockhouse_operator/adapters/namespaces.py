"""The namespaces whose resources this operator serves, and which of them the API server does not let it read.

A namespace that is deleted takes the operator's RoleBinding along, so one that is deleted and one that is forbidden
look the same: a refusal. What cannot be read is unknown. It must never be taken for gone, nor for empty.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import structlog

from blockhouse.errors import Permanent
from blockhouse_operator.adapters.kinds import Kind, Object
from blockhouse_operator.adapters.kubernetes import Kubernetes
from blockhouse_operator.adapters.refusals import NotFound

log = structlog.get_logger(__name__)

LONGEST_REST = 120.0
"""Seconds between two attempts to read a namespace that is refused again and again."""


class Listed(NamedTuple):
    """Objects of all namespaces but those of `unread`, of which nothing is known."""

    found: list[Object]
    unread: tuple[str, ...]


class Namespaces:
    """Those that are named, each of which has rights of its own; without names all, by rights on the whole cluster: a
    refusal is then an error as any other."""

    def __init__(self, names: Sequence[str] = ()) -> None:
        self.names = tuple(dict.fromkeys(names))
        self._readable = {name: asyncio.Event() for name in self.names}
        for readable in self._readable.values():
            readable.set()
        self._refusals: dict[str, int] = {}
        self._due: dict[str, float] = {}

    @property
    def scopes(self) -> tuple[str | None, ...]:
        """What lists and watches are asked for, one after another; None is the whole cluster."""
        return self.names or (None,)

    @property
    def unread(self) -> frozenset[str]:
        """Named namespaces that cannot be read now."""
        return frozenset(self._refusals)

    async def list(self, kubernetes: Kubernetes, kind: Kind, labels: Mapping[str, str] | None = None) -> Listed:
        """Every object of the kind with these labels. Raises as `Kubernetes.list`, but for no namespace's refusal."""
        found: list[Object] = []
        unread = []
        for scope in self.scopes:
            try:
                found += await kubernetes.list(kind, scope, labels)
            except Permanent as error:
                unread.append(self.refusing(scope, error))
        return Listed(found, tuple(unread))

    def refusing(self, scope: str | None, error: Permanent) -> str:
        """The namespace that the API server refuses. Raises the error where it is about something else."""
        if scope is None or isinstance(error, NotFound):
            raise error
        return scope

    def rests(self, scope: str | None, now: float) -> bool:
        """Whether it was refused so lately that it is not asked again yet."""
        return scope is not None and now < self._due.get(scope, now)

    def refused(self, name: str, why: str, *, at: float, first: float) -> None:
        """It cannot be read; it is tried again after `first` seconds, and twice as many at each further refusal."""
        if name not in self._refusals:
            action = "its resources are left as they are, and it is tried again"
            log.error("namespace_unread", namespace=name, why=why, action=action)
        times = self._refusals[name] = min(self._refusals.get(name, 0) + 1, 16)
        self._due[name] = at + min(LONGEST_REST, first * 2.0 ** (times - 1))
        self._readable[name].clear()

    def read(self, scope: str | None) -> bool:
        """It can be read; returns whether it could not before."""
        if scope is None:
            return False
        again = self._refusals.pop(scope, 0) > 0
        self._due.pop(scope, None)
        self._readable[scope].set()
        if again:
            log.info("namespace_read_again", namespace=scope)
        return again

    async def readable(self, scope: str | None) -> bool:
        """Wait until it can be read; returns whether there was anything to wait for."""
        if scope is None or self._readable[scope].is_set():
            return False
        await self._readable[scope].wait()
        return True
