"""The configuration file becomes one validated value, or a list of everything that is wrong with it.

It must never show a secret, not even one that was written where its reference belongs.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from blockhouse.config.describe import field_at, form_of, model_at
from blockhouse.config.pipeline import AggregatorConfig
from blockhouse.errors import BlockhouseError

Model = TypeVar("Model", bound=BaseModel)

_SECRET = ("password", "token", "secret")
_SHOWN = 60


class ConfigError(BlockhouseError):
    """The configuration cannot be used. `problems` has a line `field: value: what was expected` for each fault."""

    exit_code = 2

    def __init__(self, source: str, problems: Sequence[str]) -> None:
        count = f"{len(problems)} error{'s' if len(problems) > 1 else ''}"
        super().__init__("\n  ".join([f"configuration {source}: {count}", *problems]))
        self.problems = tuple(problems)


Unknown = Callable[[str], None]
"""Called with each field that this version does not know, as `kafka.clusters[0].name`; without it they are faults.

The operator may be newer than the image that reads what it wrote: refusing would stop a pipeline for a field that
older images did without.
"""


def load(path: Path, unknown: Unknown | None = None) -> AggregatorConfig:
    """The configuration of an aggregator in a YAML file. Raises ConfigError with all its faults at once."""
    return load_as(AggregatorConfig, path, unknown)


def load_as(model: type[Model], path: Path, unknown: Unknown | None = None) -> Model:
    """The settings in a YAML file. Raises ConfigError with all its faults at once."""
    return validate_as(model, read_as_mapping(path), source=str(path), unknown=unknown)


def read_as_mapping(path: Path) -> dict[str, Any]:
    """The fields of a YAML file, not yet validated. Raises ConfigError."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(str(path), [f"file: cannot be read: {error}"]) from error
    return _mapping(text, str(path))


def parse(text: str, *, source: str = "text") -> AggregatorConfig:
    """The configuration of an aggregator in a YAML text; `source` names it in errors. Raises ConfigError."""
    return parse_as(AggregatorConfig, text, source=source)


def parse_as(model: type[Model], text: str, *, source: str = "text", unknown: Unknown | None = None) -> Model:
    """The settings in a YAML text; `source` names it in errors. Raises ConfigError."""
    return validate_as(model, _mapping(text, source), source=source, unknown=unknown)


def _mapping(text: str, source: str) -> dict[str, Any]:
    try:
        content = yaml.load(text, Loader=_UniqueKeys)
    except yaml.YAMLError as error:
        raise ConfigError(source, [_syntax(error)]) from None  # the error quotes the text, secrets included
    if not isinstance(content, dict):
        raise ConfigError(source, [f"document: {_shown(content)}: expected a mapping of fields"])
    return content


def validate_as(
    model: type[Model], content: dict[str, Any], *, source: str = "text", unknown: Unknown | None = None
) -> Model:
    """The settings of fields by their names in YAML; `source` names them in errors. Raises ConfigError."""
    if unknown is not None:
        _forget_unknown(model, content, unknown)
    try:
        return model.model_validate(content)
    except ValidationError as error:
        raise ConfigError(source, [_line(model, fault) for fault in _own_faults(error.errors())]) from None


def _forget_unknown(model: type[Model], content: dict[str, Any], unknown: Unknown) -> None:
    """Take the fields that the model does not know out of the content."""
    try:
        model.model_validate(content)
    except ValidationError as error:
        for fault in error.errors():
            if fault["type"] == "extra_forbidden":
                *steps, last = fault["loc"]
                owner: Any = content
                for step in steps:
                    owner = owner[step]
                del owner[last]
                unknown(_path(fault["loc"]))


class _UniqueKeys(yaml.SafeLoader):
    """YAML lets the last of two equal keys win in silence; a configuration must not."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[Hashable] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if isinstance(key, Hashable) and key in seen:
                raise yaml.constructor.ConstructorError(None, None, f"key {key!r} is given twice", key_node.start_mark)
            if isinstance(key, Hashable):
                seen.add(key)
        return super().construct_mapping(node, deep)


def _syntax(error: yaml.YAMLError) -> str:
    if not isinstance(error, yaml.MarkedYAMLError) or error.problem_mark is None:
        return "YAML: cannot be parsed"
    mark = error.problem_mark
    return f"line {mark.line + 1}, column {mark.column + 1}: {error.problem or error.context}"


def _own_faults(faults: list[ErrorDetails]) -> list[ErrorDetails]:
    """Without "too short" of a list whose items are at fault: pydantic counts only the good ones."""
    at = [fault["loc"] for fault in faults]
    return [f for f in faults if f["type"] != "too_short" or not any(o[: len(f["loc"])] == f["loc"] != o for o in at)]


def _line(model: type[BaseModel], fault: ErrorDetails) -> str:
    location = fault["loc"]
    return f"{_path(location)}: {_value(fault)}: {_expected(model, fault)}"


def _path(location: Sequence[str | int]) -> str:
    text = ""
    for step in location:
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else step
    return text or "document"


def _value(fault: ErrorDetails) -> str:
    if fault["type"] == "missing":
        return "missing"
    if any(word in str(step).lower() for step in fault["loc"] for word in _SECRET):
        return "(hidden)"
    return _shown(fault["input"])


def _shown(value: object) -> str:
    if isinstance(value, dict):
        return f"mapping of {', '.join(map(str, value)) or 'nothing'}"
    if isinstance(value, list):
        return f"list of {len(value)}"
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def _expected(model: type[BaseModel], fault: ErrorDetails) -> str:
    location, kind = fault["loc"], fault["type"]
    if kind == "extra_forbidden":
        return _unknown(model, location)
    if kind == "value_error":
        return str(fault["ctx"]["error"])
    field, owner = field_at(model, location), model_at(model, location)
    if owner is not None:
        return f"expected {'a list of' if kind == 'tuple_type' else 'a'} mapping with {', '.join(_names(owner))}"
    if field is None:
        return fault["msg"].replace("Input should be", "expected")
    return f"expected {form_of(field)}"


def _unknown(model: type[BaseModel], location: Sequence[str | int]) -> str:
    owner = model_at(model, location[:-1])
    known = _names(owner) if owner is not None else []
    near = get_close_matches(str(location[-1]), known, n=3, cutoff=0.6)
    if near:
        return f"unknown field, did you mean {' or '.join(near)}?"
    return f"unknown field, expected one of {', '.join(known)}"


def _names(model: type[BaseModel]) -> list[str]:
    return [field.alias or name for name, field in model.model_fields.items()]
