"""What fields there are, read off the models themselves: for the texts of errors and for the reference in `docs/`."""

from __future__ import annotations

import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import annotated_types
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from blockhouse.config.secrets import SecretRef
from blockhouse.config.units import IS_DURATION, IS_FRACTION, IS_SIZE, duration_text, percent_text, size_text


@dataclass(frozen=True, slots=True)
class FieldDescription:
    """One field: `path` as in YAML (`kafka.clusters[].name`), `form` what it accepts, `default` or "required"."""

    path: str
    form: str
    default: str
    meaning: str

    def __str__(self) -> str:
        """A row of a Markdown table."""
        return f"| `{self.path}` | {self.form} | {self.default} | {self.meaning} |"


HEAD = "| field | accepts | default | meaning |\n|---|---|---|---|"


def table(model: type[BaseModel]) -> str:
    """Every field of the settings as a Markdown table, which ends with a line feed."""
    return "\n".join([HEAD, *map(str, leaf_fields(model))]) + "\n"


def leaf_fields(
    model: type[BaseModel], path: str = "", about: str = "", section: BaseModel | None = None
) -> Iterator[FieldDescription]:
    """Every field that takes a value, depth first, in the order of the models. `about`: what the section is of, for
    fields that name only "it". `section`: what holds without the section, where its owner has defaults of its own."""
    for name, field in model.model_fields.items():
        at = f"{path}{field.alias or name}"
        suffix, inner = _nested(field.annotation)
        meaning = " ".join((field.description or "").split())
        if inner is None:
            text = f"{about} {meaning}" if about and model is SecretRef else meaning
            yield FieldDescription(at, form_of(field), _default(field, section, name), text)
        else:
            default = None if suffix or field.is_required() else field.get_default(call_default_factory=True)
            yield from leaf_fields(inner, f"{at}{suffix}.", meaning, default)


def field_at(model: type[BaseModel], location: Sequence[str | int]) -> FieldInfo | None:
    """The field that a location (as in pydantic's errors) points to, None when there is none."""
    owner = model_at(model, location[:-1])
    if owner is None or not location:
        return None
    return next((f for name, f in owner.model_fields.items() if location[-1] in (f.alias, name)), None)


def model_at(model: type[BaseModel], location: Sequence[str | int]) -> type[BaseModel] | None:
    """The settings that a location points to, None when it points to a value."""
    current: type[BaseModel] | None = model
    skip = False
    for step in location:
        if skip:  # an index of a list, or a key of a mapping, between a field and its settings
            skip = False
            continue
        field = field_at(current, [step]) if current is not None else None
        if field is None:
            return None
        suffix, current = _nested(field.annotation)
        skip = bool(suffix)
    return current


def form_of(field: FieldInfo) -> str:
    """What the field accepts, in words, ranges included."""
    show: Callable[[Any], str] = str
    if IS_DURATION in field.metadata:
        form, show = "duration: seconds, or with ms, s, m or h", duration_text
    elif IS_SIZE in field.metadata:
        form, show = "size: bytes, or with Ki, Mi, Gi or Ti", size_text
    elif IS_FRACTION in field.metadata:
        form, show = "part of a whole: a number, or with %", percent_text
    else:
        form = _type(field.annotation)
    of = "entries" if form.startswith(("mapping", "list")) else "characters"
    bounds = [text for constraint in field.metadata if (text := _bound(constraint, show, of))]
    return ", ".join([form, *bounds])


def _nested(annotation: Any) -> tuple[str, type[BaseModel] | None]:
    """The settings inside an annotation, with `[]` for a list of them and `.NAME` for a mapping to them."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return "", annotation
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin in (Union, types.UnionType):
        return _nested(next(a for a in arguments if a is not type(None)))
    if origin is tuple:
        return "[]", _nested(arguments[0])[1]
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return ".NAME", _nested(arguments[1])[1]
    return "", None


def _type(annotation: Any) -> str:
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin in (Union, types.UnionType):
        return _type(next(a for a in arguments if a is not type(None)))
    if origin is Annotated:
        return _type(arguments[0])
    if origin is Literal:
        return " or ".join(f"`{a}`" for a in arguments)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return "mapping of text to text"
    if origin is tuple:
        return f"list of {_type(arguments[0])}"
    names = {"str": "text", "int": "integer", "float": "number", "bool": "`true` or `false`", "Path": "path"}
    return names[annotation.__name__]


def _bound(constraint: Any, show: Callable[[Any], str], of: str) -> str:
    match constraint:
        case annotated_types.Ge(ge=value):
            return f">= {show(value)}"
        case annotated_types.Gt(gt=value):
            return f"> {show(value)}"
        case annotated_types.Le(le=value):
            return f"<= {show(value)}"
        case annotated_types.MinLen(min_length=value):
            return "not empty" if value == 1 else f"at least {value} {of}"
        case annotated_types.MaxLen(max_length=value):
            return f"at most {value} {of}"
        case _:  # open: pydantic's other markers
            pass
    pattern = getattr(constraint, "pattern", None)
    return f"matching `{pattern}`" if pattern else ""


def _default(field: FieldInfo, section: BaseModel | None, name: str) -> str:
    if field.is_required():
        return "required"
    default = field.get_default(call_default_factory=True) if section is None else getattr(section, name)
    if default is None or default == {}:
        return "none"
    if isinstance(default, bool):
        return str(default).lower()
    if isinstance(default, tuple):
        return ", ".join(map(str, default)) or "none"
    if IS_SIZE in field.metadata:
        return size_text(default)
    if IS_DURATION in field.metadata:
        return duration_text(default)
    if IS_FRACTION in field.metadata:
        return percent_text(default)
    return str(default)
