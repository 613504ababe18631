"""`blockhouse status --pipeline`: a pipeline's resources and the status pages of its aggregators, for a person with a
kubeconfig.

Only reads: it gets two kinds of resources, lists pods, gets the Secret of the token that only reads, and asks the pods
by way of the API server; those of an image that knows no such token with that of the admin APIs, if the person may read
it. A pod that does not answer hides no other, and neither does a right that is missing.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from blockhouse.cli.status_view import Asked, Condition, Found, Resource
from blockhouse.contract.aggregator import STATUS, StatusPage
from blockhouse.contract.base import NotUnderstood
from blockhouse.errors import BlockhouseError, Permanent, Retryable
from blockhouse.serving import TOKEN_HEADER
from blockhouse_operator.adapters.connection import connect
from blockhouse_operator.adapters.fence import Fence
from blockhouse_operator.adapters.figures import Figures
from blockhouse_operator.adapters.kinds import BLOCK_AGGREGATOR, POD, SHARD_INGEST, Object
from blockhouse_operator.adapters.kubernetes import Kubernetes
from blockhouse_operator.adapters.refusals import NotFound
from blockhouse_operator.adapters.secrets import Contents
from blockhouse_operator.api import labels, names
from blockhouse_operator.decide.pods import speaks_tls

UNAUTHORIZED = 401


class _Pod(NamedTuple):
    name: str
    secure: bool
    """Whether it speaks TLS: the API server verifies no certificate, as when it asks kubelets' pods itself."""


@dataclass(frozen=True, slots=True)
class _Login:
    tokens: str
    """One or several, each on a line."""
    problem: str
    """Why they could not be read; empty where they could."""

    def __repr__(self) -> str:
        return "_Login(...)"


async def pipeline_status(
    pipeline: str, namespace: str, kubeconfig: str | None, context: str | None, seconds: float
) -> Found:
    """What is known of the pipeline; each pod has `seconds` to answer. Raises BlockhouseError when there is no such
    pipeline, or no way to the API server."""
    api = await connect(kubeconfig, context, identity="status")
    try:
        # A fence that is never open, and a dry run: nothing is ever written.
        kubernetes = Kubernetes(api, Fence(0), Figures(), dry_run=True)
        resources = await _resources(kubernetes, pipeline, namespace)
        own = labels.of_pipeline(pipeline, "replica")
        selector = {key: own[key] for key in (labels.PIPELINE, labels.COMPONENT)}
        found = await kubernetes.list(POD, namespace, selector)
        pods = sorted(_Pod(pod["metadata"]["name"], speaks_tls(pod)) for pod in found)
        asked = await _ask_all(kubernetes, pipeline, namespace, pods, seconds)
    finally:
        await api.close()  # type: ignore[no-untyped-call]
    return Found(asked, resources)


async def _resources(kubernetes: Kubernetes, pipeline: str, namespace: str) -> Sequence[Resource]:
    found = await kubernetes.get(BLOCK_AGGREGATOR, namespace, pipeline)
    if found is None:
        raise Permanent(f"there is no BlockAggregator {pipeline} in namespace {namespace}", reason="NoSuchPipeline")
    shards = await kubernetes.list(SHARD_INGEST, namespace, {labels.PIPELINE: pipeline})
    return [_resource(each) for each in (found, *shards)]


def _resource(found: Object) -> Resource:
    reported = (found.get("status") or {}).get("conditions") or ()
    keys = ("type", "status", "reason", "message")
    conditions = tuple(Condition(*(str(each.get(key, "")) for key in keys)) for each in reported)
    return Resource(found["kind"], found["metadata"]["name"], conditions)


async def _ask_all(
    kubernetes: Kubernetes, pipeline: str, namespace: str, pods: Sequence[_Pod], seconds: float
) -> Sequence[Asked]:
    """Each pod with the token that only reads; once more with that of the admin APIs where it is not accepted."""
    with tempfile.TemporaryDirectory() as folder:
        contents = Contents(kubernetes, namespace, Path(folder))
        login = await _login(contents, names.read_secret(pipeline), lambda: contents.reading_tokens(pipeline))
        asked = await asyncio.gather(*(_ask(kubernetes, namespace, pod, login, seconds) for pod in pods))
        refused = [number for number, (_, accepted) in enumerate(asked) if not accepted]
        admin = _Login("", "")
        if refused:
            secret = names.internal_secret(pipeline)
            admin = await _login(contents, secret, lambda: contents.admin_login(pipeline, None).tokens)
        if admin.tokens:
            again = (_ask(kubernetes, namespace, pods[number], admin, seconds) for number in refused)
            for number, answer in zip(refused, await asyncio.gather(*again), strict=True):
                asked[number] = answer
    return [answer for answer, _ in asked]


async def _login(contents: Contents, secret: str, tokens: Callable[[], str]) -> _Login:
    try:
        await contents.object(secret)
    except BlockhouseError as error:
        return _Login("", str(error))
    return _Login(tokens(), "")


async def _ask(kubernetes: Kubernetes, namespace: str, pod: _Pod, login: _Login, seconds: float) -> tuple[Asked, bool]:
    """The answer, and whether a token was accepted, as far as is known: the next one is tried where one is not."""
    first, _, others = login.tokens.partition("\n")
    try:
        async with asyncio.timeout(seconds):
            headers = {TOKEN_HEADER: first} if first else {}
            answer = await kubernetes.proxied(
                namespace, pod.name, names.ADMIN_PORT, STATUS.path, headers, secure=pod.secure
            )
        return Asked(pod.name, StatusPage.parse(answer), ""), True
    except TimeoutError:
        return Asked(pod.name, None, f"no answer in {seconds:g} s"), True
    except NotFound:
        return Asked(pod.name, None, "the pod is gone"), True
    except (Retryable, Permanent) as error:
        if error.code == UNAUTHORIZED and others:
            return await _ask(kubernetes, namespace, pod, replace(login, tokens=others), seconds)
        text = f"{error}; the token: {login.problem}" if login.problem else str(error)
        return Asked(pod.name, None, text), error.code != UNAUTHORIZED
    except (NotUnderstood, ValueError) as error:
        return Asked(pod.name, None, f"it answers something unknown: {error}"), True
