"""The way to an API server: a kubeconfig, or the service account of the pod."""

from __future__ import annotations

from kubernetes.aio.client import ApiClient, Configuration
from kubernetes.aio.config import ConfigException, load_incluster_config, load_kube_config

from blockhouse.errors import Permanent
from blockhouse_operator.adapters.kubernetes import FIELD_MANAGER


async def connect(kubeconfig: str | None = None, context: str | None = None, *, identity: str = "") -> ApiClient:
    """A client by kubeconfig, or by the pod's service account where there is none. Raises Permanent.

    `identity` goes into the user agent: operators share a service account, and an audit log has to distinguish them.
    """
    configuration = Configuration()
    try:
        if kubeconfig is None and context is None:
            try:
                load_incluster_config(client_configuration=configuration)  # type: ignore[no-untyped-call]
            except ConfigException:
                await load_kube_config(client_configuration=configuration)  # type: ignore[no-untyped-call]
        else:
            await load_kube_config(config_file=kubeconfig, context=context, client_configuration=configuration)  # type: ignore[no-untyped-call]
    except (ConfigException, OSError) as error:
        raise Permanent(
            f"no way to a Kubernetes API server: {error}; run in a pod, or give --kubeconfig", reason="NoKubeconfig"
        ) from error
    api = ApiClient(configuration)
    api.user_agent = f"{FIELD_MANAGER} ({identity})" if identity else FIELD_MANAGER
    return api
