"""Load from a Prometheus server: its HTTP API, asked query by query.

A query that is refused costs only what it would have given. It must never put the bearer token into an error.
"""

from __future__ import annotations

import json
import re
import time
import urllib.error
import urllib.parse
import urllib.request
from typing import Any

from blockhouse.config.endpoints import Tls
from blockhouse.errors import BlockhouseError, Permanent, Retryable
from blockhouse.fleet.kafka_client import tls_context
from blockhouse.fleet.load.answers import Interpreter, Series
from blockhouse.fleet.load.cluster import Named
from blockhouse.fleet.load.presets import complete
from blockhouse.fleet.load.settings import PrometheusSettings
from blockhouse.load.model import Problem, ProblemKind, Sample


class PrometheusSource:
    """A `LoadSource`."""

    name = "prometheus"

    def __init__(self, settings: PrometheusSettings, cluster: Named) -> None:
        self._settings, self._cluster = settings, cluster
        self._queries = complete(settings.preset, settings.queries)
        self._context = tls_context(settings.tls or Tls()) if settings.url.startswith("https") else None

    def sample(self) -> Sample:
        """Raises Retryable when Prometheus answers no query at all, or the cluster does not give its names."""
        headers = self._headers()
        names = self._cluster.names()
        answers: dict[str, Series] = {}
        problems: list[Problem] = []
        for name, query in self._queries.items():
            try:
                answers[name] = self._ask(query, headers)
            except Permanent as error:
                problems.append(Problem(ProblemKind.UNAVAILABLE, f"query {name}", str(error)))
        if not answers:
            raise Retryable(f"Prometheus at {self._settings.url} answered no query: {problems[0].text}", after=5.0)
        return Interpreter(
            answers=answers,
            names=names,
            pod=re.compile(self._settings.broker_from_pod),
            window=self._settings.window,
            now=time.time(),
            problems=problems,
        ).sample()

    def _ask(self, query: str, headers: dict[str, str]) -> Series:
        """The vector that a query gives now. Raises Permanent when it is refused, Retryable when there is no answer."""
        filled = query.replace("$window", f"{self._settings.window:.0f}s")
        url = f"{self._settings.url.rstrip('/')}/api/v1/query?{urllib.parse.urlencode({'query': filled})}"
        request = urllib.request.Request(url, headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=self._settings.timeout, context=self._context) as answer:
                document = json.load(answer)
        except urllib.error.HTTPError as error:
            raise self._refused(error) from None
        except (OSError, ValueError) as error:
            raise self._silent(str(getattr(error, "reason", error))) from None
        return _vector(document)

    def _headers(self) -> dict[str, str]:
        token = self._settings.bearer_token
        return {"Authorization": f"Bearer {token.read()}"} if token else {}

    def _refused(self, error: urllib.error.HTTPError) -> BlockhouseError:
        with error:
            words = error.read(2000).decode("utf-8", "replace")
        if error.code in (400, 422):
            return Permanent(f"Prometheus refused it: {_error(words)}; correct the query", reason="QueryRefused")
        hint = "; check bearerToken" if error.code in (401, 403) else ""
        return self._silent(f"HTTP {error.code}: {_error(words)}{hint}")

    def _silent(self, why: str) -> Retryable:
        return Retryable(f"Prometheus at {self._settings.url} did not answer: {why}", after=5.0)


def _error(words: str) -> str:
    try:
        return str(json.loads(words)["error"])
    except (ValueError, KeyError, TypeError):
        return words.strip()[:200] or "no words"


def _vector(document: Any) -> Series:
    """Labels and values of an answer. Raises Permanent when it is not a vector."""
    try:
        if document["status"] != "success" or document["data"]["resultType"] != "vector":
            raise Permanent(f"the answer is a {document['data']['resultType']}, not a vector", reason="NoVector")
        return [(found["metric"], float(found["value"][1])) for found in document["data"]["result"]]
    except (KeyError, TypeError, IndexError, ValueError) as error:
        raise Permanent(f"the answer is not Prometheus' ({type(error).__name__}: {error})", reason="NoVector") from None
