"""Where the operator reaches what runs in the pods: by their Services, unless it is configured otherwise.

An operator outside the cluster's network (a test, a developer's machine, one that reaches another Kubernetes through a
gateway) cannot resolve Service names. It is given templates instead:

    blockhouse operator run --aggregator-url 'http://127.0.0.1:8080/{namespace}/{replica}'
                            --verifier-url 'http://127.0.0.1:8080/{namespace}/{verifier}'
                            --clickhouse-url 'http://127.0.0.1:8080/{namespace}/{replica}/clickhouse'
                            --mirror-url 'http://127.0.0.1:8080/{namespace}/{mirror}'

or the same in BLOCKHOUSE_AGGREGATOR_URL, BLOCKHOUSE_VERIFIER_URL, BLOCKHOUSE_CLICKHOUSE_URL and BLOCKHOUSE_MIRROR_URL.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import aiohttp

from blockhouse_operator.api import names

UNREACHABLE = (aiohttp.ClientError, TimeoutError, OSError, UnicodeError)
"""What a request raises that gets no answer; the last of a host that is no valid name, a label of 64 characters."""
AGGREGATOR_URL = "BLOCKHOUSE_AGGREGATOR_URL"
VERIFIER_URL = "BLOCKHOUSE_VERIFIER_URL"
CLICKHOUSE_URL = "BLOCKHOUSE_CLICKHOUSE_URL"
MIRROR_URL = "BLOCKHOUSE_MIRROR_URL"


@dataclass(frozen=True, slots=True)
class Endpoints:
    """Templates of URLs; None is the Service of each. ValueError for one that names no object."""

    aggregator_template: str | None = None
    """With `{replica}` and, where it matters, `{namespace}`."""
    verifier_template: str | None = None
    """With `{verifier}` and, where it matters, `{namespace}`."""
    clickhouse_template: str | None = None
    """As that of aggregators."""
    mirror_template: str | None = None
    """With `{mirror}` and, where it matters, `{namespace}`."""

    def __post_init__(self) -> None:
        for template, needed in (
            (self.aggregator_template, "{replica}"),
            (self.verifier_template, "{verifier}"),
            (self.clickhouse_template, "{replica}"),
            (self.mirror_template, "{mirror}"),
        ):
            if template is not None and needed not in template:
                raise ValueError(f"the URL {template!r} must contain {needed}: all objects would share one")

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> Endpoints:
        return cls(
            *(environment.get(name) or None for name in (AGGREGATOR_URL, VERIFIER_URL, CLICKHOUSE_URL, MIRROR_URL))
        )

    def aggregator(self, replica: str, namespace: str, *, secure: bool = False) -> str:
        """Base of an aggregator's admin API: `/status` is below it. No slash at its end."""
        if self.aggregator_template is None:
            return _by(names.admin_url(replica, namespace), secure=secure)
        return _filled(self.aggregator_template, namespace=namespace, replica=replica)

    def clickhouse(self, replica: str, namespace: str, host: str, *, secure: bool = False) -> str:
        """The HTTP interface of a replica's managed ClickHouse at `host`. No slash at its end."""
        if self.clickhouse_template is None:
            return f"https://{host}:{names.HTTPS_PORT}" if secure else f"http://{host}:{names.HTTP_PORT}"
        return _filled(self.clickhouse_template, namespace=namespace, replica=replica)

    def verifier(self, pipeline: str, namespace: str, *, secure: bool = False) -> str:
        """Base of a verifier's HTTP API: `/verdict` is below it. No slash at its end."""
        if self.verifier_template is None:
            return _by(names.verifier_url(pipeline, namespace), secure=secure)
        return _filled(self.verifier_template, namespace=namespace, verifier=names.verifier(pipeline))

    def mirror(self, name: str, namespace: str, *, secure: bool = False) -> str:
        """Base of a mirror's HTTP API: `/status` is below it. No slash at its end."""
        if self.mirror_template is None:
            return _by(names.mirror_url(name, namespace), secure=secure)
        return _filled(self.mirror_template, namespace=namespace, mirror=names.mirror(name))


def _by(url: str, *, secure: bool) -> str:
    return url.replace("http:", "https:", 1) if secure else url


def _filled(template: str, **values: str) -> str:
    for name, value in values.items():
        template = template.replace("{" + name + "}", value)
    return template.rstrip("/")
