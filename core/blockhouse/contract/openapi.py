"""The contract as an OpenAPI 3.1 document, for programs that are not ours. Made from the values; never edited."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from blockhouse.contract import aggregator, diagnosis, faults, interventions, rollouts, throttle, verifier
from blockhouse.contract.base import Endpoint

Json = dict[str, Any]
_PROGRAMS = {
    "aggregator": (
        *aggregator.ENDPOINTS,
        *diagnosis.ENDPOINTS,
        *interventions.ENDPOINTS,
        *rollouts.ENDPOINTS,
        *faults.ENDPOINTS,
    ),
    "verifier": verifier.ENDPOINTS,
    "throttle": throttle.ENDPOINTS,
}
_DESCRIPTION = """What every aggregator, every verifier and `blockhouse topics throttle run --http` answers, one address
each. A required key is in the answers of every version; a key that is not required has a stated meaning when it is
absent; unknown keys are to be ignored."""
_TEXTS = {
    "/healthz": "200 while the process is worth keeping, 503 once only a restart helps.",
    "/readyz": "200 once it has started, 503 before.",
    "/metrics": "Figures for Prometheus.",
}
_TOKEN = "`admin.token`; for GET also the read-only one that `blockhouse config read-token` prints."
_HEADER = "The same, by way of a Kubernetes API server, which keeps `Authorization` to itself."
_CROSS_SITE = {403: "A page of another site asks, and there is no token: the text has what to do."}
_READ_ONLY = {403: f"The token only reads: the text has what to do. Or: {_CROSS_SITE[403]}"}
"""The same of a request that changes something."""
_OPEN = ("/healthz", "/readyz")
"""What is answered without a token."""
_PAGE: Json = {
    "summary": "A page for people over /status and /history; it asks for the token itself.",
    "tags": ["aggregator"],
    "security": [],
    "responses": {"200": {"description": "HTML.", "content": {"text/html": {"schema": {"type": "string"}}}}},
}


def document(version: str) -> Json:
    """The document, as JSON values. `version` is that of the product."""
    models: list[type[BaseModel]] = []
    for endpoint in _endpoints():
        models += [model for model in (endpoint.answer, endpoint.request) if model is not None and model not in models]
    # "validation": what a reader may rely on. A later key has a default, so it is not required there.
    _, schemas = models_json_schema(
        [(model, "validation") for model in models], ref_template="#/components/schemas/{model}"
    )
    return {
        "openapi": "3.1.0",
        "info": {"title": "Blockhouse", "version": version, "description": " ".join(_DESCRIPTION.split())},
        "security": [{"token": []}, {"header": []}],
        "paths": {"/": {"get": _PAGE}, **_texts(), **_paths()},
        "components": {
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer", "description": _TOKEN},
                "header": {"type": "apiKey", "in": "header", "name": "X-Blockhouse-Token", "description": _HEADER},
            },
            "schemas": {name: _plain(schema) for name, schema in sorted(schemas["$defs"].items())},
        },
    }


def _endpoints() -> Iterator[Endpoint]:
    for endpoints in _PROGRAMS.values():
        yield from endpoints


def _texts() -> Json:
    paths: Json = {}
    for path, words in _TEXTS.items():
        answers = {"200": _text("A line of text."), **_refusals(_CROSS_SITE)}
        if path in _OPEN:
            answers["503"] = _text("The reason, as a line of text.")
        else:
            answers["401"] = _text("The token is missing or wrong.")
        operation: Json = {"summary": words, "tags": list(_PROGRAMS), "responses": answers}
        paths[path] = {"get": operation | ({"security": []} if path in _OPEN else {})}
    return paths


def _paths() -> Json:
    paths: Json = {}
    for program, endpoints in _PROGRAMS.items():
        for endpoint in endpoints:
            paths.setdefault(endpoint.path, {})[endpoint.method.lower()] = _operation(program, endpoint)
    return paths


def _operation(program: str, endpoint: Endpoint) -> Json:
    answer: Json = _reference(endpoint.answer)
    content = {"application/json": {"schema": {"type": "array", "items": answer} if endpoint.many else answer}}
    operation: Json = {"summary": endpoint.summary, "tags": [program]}
    parameters: list[Json] = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in re.findall(r"{(\w+)}", endpoint.path)
    ]
    parameters += [
        {"name": name, "in": "query", "description": meaning, "schema": {"type": "string"}}
        for name, meaning in endpoint.query.items()
    ]
    if parameters:
        operation["parameters"] = parameters
    if endpoint.request is not None:
        body = {"application/json": {"schema": _reference(endpoint.request)}}
        operation["requestBody"] = {"required": True, "content": body}
    refusals = _refusals({**(_CROSS_SITE if endpoint.method == "GET" else _READ_ONLY), **endpoint.refusals})
    return operation | {"responses": {"200": {"description": "Done.", "content": content}, **refusals}}


def _refusals(reasons: Mapping[int, str]) -> Json:
    return {str(code): _text(why) for code, why in sorted(reasons.items())}


def _reference(model: type[BaseModel]) -> Json:
    return {"$ref": f"#/components/schemas/{model.__name__}"}


def _text(words: str) -> Json:
    return {"description": words, "content": {"text/plain": {"schema": {"type": "string"}}}}


def _plain(schema: Any) -> Any:
    """Without pydantic's titles, which repeat the keys, and with every text on one line."""
    if isinstance(schema, dict):
        titled = isinstance(schema.get("title"), str)
        return {key: _plain(value) for key, value in schema.items() if not (titled and key == "title")}
    if isinstance(schema, list):
        return [_plain(each) for each in schema]
    return " ".join(schema.split()) if isinstance(schema, str) else schema
