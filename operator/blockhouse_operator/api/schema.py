"""The structural OpenAPI schema of a model, as a CRD wants it, so that schema and models cannot disagree.

Constraints, defaults, documentation, list types and CEL rules are read off the models. An annotation that has no
structural schema is a TypeError here, hence a failing test, and not a surprise in a cluster.
"""

from __future__ import annotations

import types
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import annotated_types
from pydantic.fields import FieldInfo

from blockhouse_operator.api.base import Between, IntOrString, ListMap, Part, Rule

Schema = dict[str, Any]


def object_schema(model: type[Part], *, defaults: bool = True) -> Schema:
    """The schema of a model; without `defaults` for a status, which the API server must not fill in."""
    properties = {}
    required = []
    for name, field in model.model_fields.items():
        key = field.alias or name
        properties[key] = _field(field, defaults)
        if field.is_required():
            required.append(key)
    schema: Schema = {"type": "object", "properties": properties}
    if required:
        schema["required"] = required
    if model.rules:
        schema["x-kubernetes-validations"] = [rule_schema(rule) for rule in model.rules]
    return schema


def rule_schema(rule: Rule) -> Schema:
    """A CEL rule."""
    return {"rule": rule.expression, "message": rule.message}


def _field(field: FieldInfo, defaults: bool) -> Schema:
    if not field.description:
        raise TypeError(f"field {field.alias} has no docstring")
    schema = _type(field.annotation, field.metadata, defaults)
    default = None if field.is_required() else field.get_default(call_default_factory=True)
    if defaults and default not in (None, (), {}):
        schema["default"] = (
            {} if isinstance(default, Part) else list(default) if isinstance(default, tuple) else default
        )
    return {"description": " ".join(field.description.split()), **schema}


def _type(annotation: Any, metadata: Iterable[Any], defaults: bool) -> Schema:
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _type(arguments[0], [*_flat(arguments[1:]), *metadata], defaults)
    if origin in (Union, types.UnionType):
        (inner,) = (argument for argument in arguments if argument is not type(None))
        return _type(inner, metadata, defaults)
    metadata = list(metadata)
    if origin is Literal:
        schema: Schema = {"type": "string", "enum": list(arguments)}
    elif origin is tuple:
        schema = _list(arguments[0], metadata, defaults)
    elif origin is dict:
        schema = {"type": "object", "additionalProperties": _type(arguments[1], (), defaults)}
    elif isinstance(annotation, type) and issubclass(annotation, Part):
        schema = object_schema(annotation, defaults=defaults)
    else:
        schema = _scalar(annotation, metadata)
    return schema | _constraints(schema, metadata) | _rules(schema, metadata)


def _list(item: Any, metadata: Sequence[Any], defaults: bool) -> Schema:
    schema: Schema = {"type": "array", "items": _type(item, (), defaults)}
    keys = [marker.key for marker in metadata if isinstance(marker, ListMap)]
    if keys:
        return schema | {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": keys}
    return schema | {"x-kubernetes-list-type": "atomic"}


def _scalar(annotation: Any, metadata: Sequence[Any]) -> Schema:
    if any(isinstance(marker, IntOrString) for marker in metadata):
        # The pattern judges texts only: a negative number would pass it.
        return {"anyOf": [{"type": "integer"}, {"type": "string"}], "x-kubernetes-int-or-string": True, "minimum": 0}
    names = {str: "string", int: "integer", bool: "boolean"}
    if annotation not in names:
        raise TypeError(f"{annotation} has no structural schema")
    return {"type": names[annotation]} | ({"format": "int64"} if annotation is int else {})


_LENGTHS = {"array": ("minItems", "maxItems"), "object": ("minProperties", "maxProperties")}


def _constraints(schema: Schema, metadata: Iterable[Any]) -> Schema:
    least, most = _LENGTHS.get(schema.get("type", ""), ("minLength", "maxLength"))
    found: Schema = {}
    for constraint in metadata:
        match constraint:
            case annotated_types.Ge(ge=value):
                found["minimum"] = value
            case annotated_types.Le(le=value):
                found["maximum"] = value
            case annotated_types.MinLen(min_length=value):
                found[least] = value
            case annotated_types.MaxLen(max_length=value):
                found[most] = value
            case _:  # open: pydantic's other markers bound nothing
                pass
        if pattern := getattr(constraint, "pattern", None):
            found["pattern"] = pattern
    return found


def _rules(schema: Schema, metadata: Iterable[Any]) -> Schema:
    markers = (marker.rule if isinstance(marker, Between) else marker for marker in metadata)
    own = [rule_schema(marker) for marker in markers if isinstance(marker, Rule)]
    known = schema.get("x-kubernetes-validations", [])
    return {"x-kubernetes-validations": [*known, *own]} if own else {}


def _flat(metadata: Iterable[Any]) -> list[Any]:
    """`Field(...)` inside Annotated stands for the constraints it carries."""
    found: list[Any] = []
    for marker in metadata:
        found.extend(marker.metadata if isinstance(marker, FieldInfo) else [marker])
    return found


def walk(schema: Mapping[str, Any], path: str = "") -> Iterable[tuple[str, Mapping[str, Any]]]:
    """Every field below a schema, depth first: (`kafka.clusters[].name`, its schema)."""
    for name, field in schema.get("properties", {}).items():
        at = f"{path}{name}"
        yield at, field
        if "items" in field:
            yield from walk(field["items"], f"{at}[].")
        elif "properties" in field.get("additionalProperties", {}):
            yield from walk(field["additionalProperties"], f"{at}.*.")
        else:
            yield from walk(field, f"{at}.")
