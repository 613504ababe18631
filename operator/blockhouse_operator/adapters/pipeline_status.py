"""`blockhouse status --pipeline`: a pipeline's resources and the status pages of its aggregators, for a person with a
kubeconfig.

Only reads: it gets two kinds of resources, lists pods, gets one Secret, and asks the pods by way of the API server. A
pod that does not answer hides no other, and neither does a right that is missing.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Sequence
from pathlib import Path

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
        pods = sorted(
            (pod["metadata"]["name"], speaks_tls(pod)) for pod in await kubernetes.list(POD, namespace, selector)
        )
        token, problem = await _token(kubernetes, pipeline, namespace)
        asked = await asyncio.gather(*(_ask(kubernetes, namespace, pod, token, problem, seconds) for pod in pods))
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


async def _token(kubernetes: Kubernetes, pipeline: str, namespace: str) -> tuple[str, str]:
    """The token of the admin APIs, and why it could not be read."""
    with tempfile.TemporaryDirectory() as folder:
        contents = Contents(kubernetes, namespace, Path(folder))
        try:
            await contents.object(names.internal_secret(pipeline))
        except BlockhouseError as error:
            return "", str(error)
        return contents.admin_login(pipeline, None).tokens, ""


async def _ask(
    kubernetes: Kubernetes, namespace: str, asked: tuple[str, bool], token: str, problem: str, seconds: float
) -> Asked:
    """`asked` is a pod, and whether it speaks TLS: the API server verifies no certificate, as when it asks kubelets'
    pods itself. `token` may be several, each on a line: the next one is tried where one is not accepted."""
    pod, secure = asked
    first, _, others = token.partition("\n")
    try:
        async with asyncio.timeout(seconds):
            headers = {TOKEN_HEADER: first} if first else {}
            answer = await kubernetes.proxied(namespace, pod, names.ADMIN_PORT, STATUS.path, headers, secure=secure)
        return Asked(pod, StatusPage.parse(answer), "")
    except TimeoutError:
        return Asked(pod, None, f"no answer in {seconds:g} s")
    except NotFound:
        return Asked(pod, None, "the pod is gone")
    except (Retryable, Permanent) as error:
        if error.code == UNAUTHORIZED and others:
            return await _ask(kubernetes, namespace, asked, others, problem, seconds)
        return Asked(pod, None, f"{error}; the token: {problem}" if problem else str(error))
    except (NotUnderstood, ValueError) as error:
        return Asked(pod, None, f"it answers something unknown: {error}")
