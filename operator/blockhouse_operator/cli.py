"""`blockhouse operator`: run the Kubernetes operator."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from typing import Annotated, Literal

import typer

from blockhouse.config.units import seconds

app = typer.Typer(no_args_is_help=True, help="The Kubernetes operator: resources into running pipelines.")


@app.callback()
def _group() -> None:
    """The Kubernetes operator: resources into running pipelines."""


@app.command(
    epilog="Examples:\n\n"
    "  blockhouse operator run --namespace ingest --namespace billing\n\n"
    "  blockhouse operator run --zones dc-a --lease-name blockhouse-dc-a\n\n"
    "  blockhouse operator run --namespace ingest --dry-run --no-leader-election --kubeconfig ~/.kube/config\n\n"
    "Exit codes: 0 stopped in order, 1 failed, 2 wrong usage, 75 no longer the leader (a fresh process takes over)."
)
def run(
    namespace: Annotated[
        list[str] | None, typer.Option(help="Only resources of this namespace, several by several; without, of all.")
    ] = None,
    zones: Annotated[str, typer.Option(help="Zones whose replicas this operator runs, a,b; without, all.")] = "",
    kubeconfig: Annotated[str, typer.Option(help="Way to the API server; without, the pod's own, or ~/.kube.")] = "",
    context: Annotated[str, typer.Option(help="Context of the kubeconfig.")] = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Log what would be written and write nothing.")] = False,
    leader_election: Annotated[
        bool, typer.Option("--leader-election/--no-leader-election", help="Write only while holding the Lease.")
    ] = True,
    lease_name: Annotated[str, typer.Option(help="Name of the Lease.")] = "blockhouse-operator",
    lease_namespace: Annotated[
        str, typer.Option(envvar="POD_NAMESPACE", help="Its namespace; without, the first --namespace or 'default'.")
    ] = "",
    identity: Annotated[str, typer.Option(envvar="POD_NAME", help="Who holds the Lease; without, host and pid.")] = "",
    aggregator_url: Annotated[
        str, typer.Option(envvar="BLOCKHOUSE_AGGREGATOR_URL", help="Admin APIs elsewhere; {replica}, {namespace}.")
    ] = "",
    verifier_url: Annotated[
        str, typer.Option(envvar="BLOCKHOUSE_VERIFIER_URL", help="Verifiers elsewhere; {verifier}, {namespace}.")
    ] = "",
    clickhouse_url: Annotated[
        str,
        typer.Option(envvar="BLOCKHOUSE_CLICKHOUSE_URL", help="ClickHouse servers elsewhere; {replica}, {namespace}."),
    ] = "",
    mirror_url: Annotated[
        str, typer.Option(envvar="BLOCKHOUSE_MIRROR_URL", help="Mirrors elsewhere; {mirror}, {namespace}.")
    ] = "",
    concurrency: Annotated[int, typer.Option(min=1, max=64, help="Resources reconciled at the same time.")] = 8,
    resync: Annotated[str, typer.Option(help="How often a resource is reconciled without an event: 60s, 5m.")] = "60s",
    http_port: Annotated[int, typer.Option(min=0, max=65535, help="Port of /healthz, /readyz and /metrics.")] = 8080,
    log_format: Annotated[Literal["json", "console"], typer.Option(help="Form of the log.")] = "json",
    log_level: Annotated[Literal["debug", "info", "warning", "error"], typer.Option(help="Least level logged.")] = (
        "info"
    ),
) -> None:
    """Run until SIGTERM. Of several operators one leads, by a Lease; it ends when it loses it.

    Operators of the same pipeline in several Kubernetes clusters are each given their own zones.
    """
    # Heavy imports only here: `blockhouse --help` must not load kopf.
    from blockhouse.logs import configure
    from blockhouse_operator.adapters.endpoints import Endpoints
    from blockhouse_operator.app import Operator, OperatorSettings

    try:
        endpoints = Endpoints(aggregator_url or None, verifier_url or None, clickhouse_url or None, mirror_url or None)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    served = frozenset(zone.strip() for zone in zones.split(",") if zone.strip())
    if zones and not served:
        raise typer.BadParameter("--zones names no zone")
    namespaces = tuple(filter(None, namespace or ()))
    settings = OperatorSettings(
        namespaces=namespaces,
        zones=served or None,
        endpoints=endpoints,
        identity=identity or f"{socket.gethostname()}_{os.getpid()}",
        lease=(lease_namespace or next(iter(namespaces), "default"), lease_name) if leader_election else None,
        kubeconfig=kubeconfig or None,
        context=context or None,
        dry_run=dry_run,
        concurrency=concurrency,
        resync=_seconds(resync),
        http_port=http_port,
    )
    configure(log_format, log_level)
    for noisy in ("kafka", "kazoo", "kopf.objects", "kopf.activities"):
        # Failures are logged by our own errors; theirs repeat at every attempt, and log each event.
        logging.getLogger(noisy).setLevel(logging.CRITICAL)
    raise typer.Exit(asyncio.run(Operator(settings).run()))


def _seconds(duration: str) -> float:
    try:
        return seconds(duration)
    except ValueError as error:
        raise typer.BadParameter(f"{error}; give for example 60s or 5m", param_hint="--resync") from error
