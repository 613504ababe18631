"""Publish the users of a pipeline's managed ClickHouse: the Secret that its servers mount as `users.xml`.

The Secrets with passwords are read once per reconcile of the pipeline, for all shards. A user without a password is
left out and named: an account must never exist without one.
"""

from __future__ import annotations

from blockhouse_operator.adapters.kinds import SECRET
from blockhouse_operator.adapters.secrets import Contents
from blockhouse_operator.api import names
from blockhouse_operator.api.resource import BlockAggregator
from blockhouse_operator.decide.references import references
from blockhouse_operator.desired.aggregator import clickhouse_secret
from blockhouse_operator.desired.clickhouse import CLUSTER_USER, Passwords
from blockhouse_operator.desired.credentials import Credentials
from blockhouse_operator.reconcile.children import Applied, apply_children
from blockhouse_operator.reconcile.parts_login import PartsLoginStep, next_step
from blockhouse_operator.reconcile.services import Services


async def publish_users(
    services: Services, pipeline: BlockAggregator, contents: Contents, own: Credentials | None, applied: Applied
) -> tuple[tuple[str, ...], PartsLoginStep]:
    """Write the Secret; returns why users are not published, a sentence each, and how far a change of the password is
    with which replicas fetch parts. `own` are the pipeline's credentials."""
    managed = pipeline.spec.clickhouse.managed
    if managed is None:
        return (), PartsLoginStep()
    passwords: dict[str, str] = {}
    missing = []
    for user in managed.users:
        problems = await contents.read(references(user))
        password = contents.text(user.password_secret_ref.name, user.password_secret_ref.key)
        if password:
            passwords[user.name] = password
        else:
            secret = user.password_secret_ref
            why = problems[0] if problems else f"key {secret.key} of Secret {secret.name} is empty or no text"
            missing.append(f"user {user.name} is not published: {why}")
    cluster = own.of_cluster if own is not None else {}
    if given := managed.cluster_secret_ref:
        await contents.read(references(given))
        shared = contents.text(given.name, given.key)
        cluster = {CLUSTER_USER: shared} if shared else {}
    step = PartsLoginStep()
    if cluster:  # without it the files stay as they are; the missing Secret is reported with all others
        name = names.clickhouse_secret(pipeline.name)
        live = await services.kubernetes.get(SECRET, pipeline.namespace, name)
        step = await next_step(services, pipeline, contents, live)
        manifest = clickhouse_secret(pipeline, Passwords(cluster, passwords), step.login)
        found = {(SECRET.name, name): live} if live is not None else {}
        applied.add(await apply_children(services.kubernetes, [manifest], found, pipeline.owners()))
    return tuple(missing), step
