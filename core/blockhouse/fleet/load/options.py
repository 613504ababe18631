"""Options the `load` commands share, and the settings they make."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
import yaml
from pydantic import ValidationError

from blockhouse.fleet.load.settings import LoadSettings
from blockhouse.placement.model import InvalidInput

SOURCE = "Source of load"

Source = Annotated[
    str | None,
    typer.Option(help="sampled (default), prometheus, cruiseControl or static.", rich_help_panel=SOURCE),
]
SourceConfig = Annotated[
    Path | None,
    typer.Option(help="YAML with the `load` section: tokens, TLS, queries, topics.", rich_help_panel=SOURCE),
]
PrometheusUrl = Annotated[
    str | None, typer.Option(help="Prometheus' address; implies --source prometheus.", rich_help_panel=SOURCE)
]
Preset = Annotated[
    str | None,
    typer.Option(
        help="Names of the exporter: strimzi (default), cruise-control, grafana-cloud.", rich_help_panel=SOURCE
    ),
]
LoadFile = Annotated[
    Path | None, typer.Option("--file", help="Rates from a file; implies --source static.", rich_help_panel=SOURCE)
]
Groups = Annotated[
    bool,
    typer.Option(help="Sampled: count what consumer groups read in tx, a request a group.", rich_help_panel=SOURCE),
]


def chosen(
    source: str | None, config: Path | None, prometheus_url: str | None, preset: str | None, file: Path | None
) -> LoadSettings:
    """The settings of the source: the file's `load` section, options over it. Raises InvalidInput with every fault."""
    document: dict[str, Any] = _section(config) if config else {}
    if prometheus_url is not None or preset is not None:
        document.setdefault("source", "prometheus")
        prometheus = document.setdefault("prometheus", {})
        prometheus |= {k: v for k, v in (("url", prometheus_url), ("preset", preset)) if v is not None}
    if file is not None:
        document |= {"source": "static", "static": {"file": str(file)}}
    if source is not None:
        document["source"] = source
    try:
        return LoadSettings.model_validate(document)
    except ValidationError as error:
        where = config or "the options"
        raise InvalidInput(
            f"{where}: load.{'.'.join(map(str, found['loc']))}: {found['msg']}" for found in error.errors()
        ) from None


def _section(config: Path) -> dict[str, Any]:
    try:
        document = yaml.safe_load(config.read_text(encoding="utf-8")) or {}
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise InvalidInput([f"{config}: cannot be read: {error}"]) from None
    section = document.get("load", document) if isinstance(document, dict) else None
    if not isinstance(section, dict):
        raise InvalidInput([f"{config}: the section `load` is missing, or is not a mapping"])
    return section
