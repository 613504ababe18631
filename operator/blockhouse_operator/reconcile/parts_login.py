"""Follow a change of the password with which replicas fetch parts from each other, step by step.

How far it is stands in the Secret that servers mount: what they may have read is never forgotten. A Secret of the
user's that is missing changes nothing.
"""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass

import structlog

from blockhouse_operator.adapters.kinds import POD, Object
from blockhouse_operator.adapters.secrets import Contents
from blockhouse_operator.api import labels, names
from blockhouse_operator.api.pipeline import BlockAggregatorSpec
from blockhouse_operator.api.resource import BlockAggregator
from blockhouse_operator.decide.parts_login import replaced, rests
from blockhouse_operator.decide.references import Reference, references
from blockhouse_operator.desired.parts_login import FILE, PartsLogin, parsed
from blockhouse_operator.reconcile.services import Services

log = structlog.get_logger(__name__)

WAITS = (
    "replicas do not use the new password of interserverSecretRef before pods of an earlier operator have restarted: "
)
READ_ONCE = "servers older than 22.1, such as 18.16, read it when they start"


@dataclass(frozen=True, slots=True)
class PartsLoginStep:
    """`login` is what servers shall have, None without `interserverSecretRef`. `begun` is what has begun now, a
    sentence; `waits` is why the next step does not begin, if for another reason than its time."""

    login: PartsLogin | None = None
    settled: bool = True
    begun: str = ""
    waits: str = ""


async def next_step(
    services: Services, pipeline: BlockAggregator, contents: Contents, live: Object | None
) -> PartsLoginStep:
    """The step that is due; `live` is the Secret that servers mount, None before there is one."""
    given, published = await _given(pipeline, contents), published_in(live)
    if reference_of(pipeline.spec) is None:
        return PartsLoginStep()
    if not given:  # reported with everything else that is missing
        return PartsLoginStep(published)
    if rests(published, given):
        return PartsLoginStep(PartsLogin(given))
    waited = services.waited(f"{pipeline.namespace}/{pipeline.name}/{FILE}", published)
    without = await _without_file(services, pipeline)
    login = replaced(published, given, waited=waited, everywhere=not without)
    begun = _begun(login, given) if login != published else ""
    if begun:
        log.info("parts_password", pipeline=f"{pipeline.namespace}/{pipeline.name}", step=begun)
    waits = f"{WAITS}{', '.join(without)}" if without else ""
    return PartsLoginStep(login, settled=rests(login, given), begun=begun, waits=waits)


def _begun(login: PartsLogin, given: str) -> str:
    if given != login.used:
        return "replicas accept the new password of interserverSecretRef beside the one that they use"
    if login.accepted:
        return f"replicas use the new password of interserverSecretRef and accept the former one; {READ_ONCE}"
    return "the former password of interserverSecretRef has ended"


def published_in(secret: Object | None) -> PartsLogin | None:
    """What the Secret that servers mount has; None where it has none."""
    try:
        return parsed(base64.b64decode(((secret or {}).get("data") or {}).get(FILE, "")).decode())
    except (binascii.Error, UnicodeDecodeError):
        return None


async def in_use(pipeline: BlockAggregator, contents: Contents) -> dict[Reference, str]:
    """By the reference of the spec, the password that replicas use, which is another one than its Secret has while that
    is being replaced. Empty where it has not been published."""
    reference = reference_of(pipeline.spec)
    if reference is None:
        return {}
    published = published_in(await contents.object(names.clickhouse_secret(pipeline.name)))
    return {} if published is None else {reference: base64.b64encode(published.used.encode()).decode()}


def reference_of(spec: BlockAggregatorSpec) -> Reference | None:
    managed = spec.clickhouse.managed
    found = references(managed.interserver_secret_ref) if managed is not None else ()
    return found[0] if found else None


async def _given(pipeline: BlockAggregator, contents: Contents) -> str:
    reference = reference_of(pipeline.spec)
    if reference is None:
        return ""
    await contents.read([reference])
    return contents.text(reference.name, reference.key) or ""


async def _without_file(services: Services, pipeline: BlockAggregator) -> list[str]:
    """Names of ClickHouse's pods that do not mount the file."""
    pods = await services.kubernetes.list(POD, pipeline.namespace, labels.of_pipeline(pipeline.name))
    return sorted(pod["metadata"]["name"] for pod in pods if _runs_server(pod) and not _mounts(pod))


def _runs_server(pod: Object) -> bool:
    return any(each.get("name") == names.CLICKHOUSE for each in (pod.get("spec") or {}).get("containers") or ())


def _mounts(pod: Object) -> bool:
    for volume in (pod.get("spec") or {}).get("volumes") or ():
        for source in (volume.get("projected") or {}).get("sources") or ():
            if any(item.get("key") == FILE for item in (source.get("secret") or {}).get("items") or ()):
                return True
    return False
