"""Fields of the resources that are settings of an aggregator, a verifier or a mirror.

A setting is declared once, in `blockhouse.config`: its type, bounds, default and docstring come from there into the CRD
and its reference, and its value goes from the resource into the program's file. Here it gets the form that an API
server can judge: durations, sizes and parts of a whole are texts with CEL rules. What was released stays: neither the
name of a field nor the text of its default may change, because a default that is written differently restarts every
pod.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

import annotated_types
from pydantic import Field, create_model
from pydantic.fields import FieldInfo

from blockhouse.config.base import Settings
from blockhouse.config.units import IS_DURATION, IS_FRACTION, IS_SIZE, duration_text, percent_text, size_text
from blockhouse_operator.api.base import Between, Duration, Fraction, LabelMap, Part, Size

PartT = TypeVar("PartT", bound=Part)


@dataclass(frozen=True, slots=True)
class Declared:
    """Fields of a part that are settings of `section`: name in the section to name in the part."""

    section: type[Settings]
    names: Mapping[str, str]


def declares(section: type[Settings], *names: str, **renamed: str) -> Callable[[type[PartT]], type[PartT]]:
    """A class decorator that gives a part these settings of a section: `names` under their own name, `renamed` under
    another. TypeError for a setting that no CRD can express, such as one without bounds."""
    own = {name: name for name in names} | renamed

    def decorate(part: type[PartT]) -> type[PartT]:
        fields: Any = {own[name]: _field(section.model_fields[name], f"{section.__name__}.{name}") for name in own}
        made = create_model(part.__name__, __base__=part, __module__=part.__module__, __doc__=part.__doc__, **fields)
        made.declared = (*part.declared, Declared(section, own))
        return made

    return decorate


def given(part: Part, section: type[Settings]) -> dict[str, Any]:
    """The arguments for `section` that a part of a resource gives, by name."""
    found: dict[str, Any] = {}
    for declared in part.declared:
        if issubclass(section, declared.section):
            for name, own in declared.names.items():
                value = getattr(part, own)
                found[name] = given(value, value.declared[0].section) if isinstance(value, Part) else value
    return found


def _field(setting: FieldInfo, name: str) -> tuple[Any, Any]:
    """Annotation and field of the resource."""
    optional = NoneType in get_args(setting.annotation)
    annotation = _annotation(setting, name)
    default: Any = ... if setting.is_required() else setting.get_default(call_default_factory=True)
    if default in (None, ...):
        pass
    elif IS_DURATION in setting.metadata:
        default = duration_text(default)
    elif IS_SIZE in setting.metadata:
        default = size_text(default)
    elif IS_FRACTION in setting.metadata:
        default = percent_text(default)
    elif isinstance(default, Settings):
        default = annotation()
    kind = annotation | None if optional else annotation
    return kind, Field(default=default, description=setting.description)


def _annotation(setting: FieldInfo, name: str) -> Any:
    kind = setting.annotation
    if get_origin(kind) in (Union, UnionType):
        (kind,) = (argument for argument in get_args(kind) if argument is not NoneType)
    if IS_DURATION in setting.metadata:
        return Annotated[(Duration, _between(setting, name, duration_text))]
    if IS_SIZE in setting.metadata:
        return Annotated[(Size, _between(setting, name, size_text))]
    if IS_FRACTION in setting.metadata:
        return Annotated[(Fraction, _between(setting, name, percent_text))]
    if isinstance(kind, type) and issubclass(kind, Settings):
        section = type(kind.__name__, (Part,), {"__doc__": kind.__doc__, "__module__": __name__})
        return declares(kind, *kind.model_fields)(section)
    if kind == dict[str, str]:
        return (
            Annotated[(dict[str, Annotated[str, Field(max_length=253)]], *setting.metadata)]
            if setting.metadata
            else LabelMap
        )
    if kind in (str, int, bool) or get_origin(kind) is Literal or _is_list_of_texts(kind):
        return Annotated[(kind, *setting.metadata)] if setting.metadata else kind
    raise TypeError(f"{name}: {kind} cannot be a field of a resource")


def _is_list_of_texts(kind: Any) -> bool:
    item = get_args(kind)[0] if get_origin(kind) is tuple else None
    return item is str or (get_origin(item) is Annotated and get_args(item)[0] is str)


def _between(setting: FieldInfo, name: str, text: Callable[[Any], str]) -> Between:
    least = [bound.ge for bound in setting.metadata if isinstance(bound, annotated_types.Ge)]
    most = [bound.le for bound in setting.metadata if isinstance(bound, annotated_types.Le)]
    if len(least) != 1 or len(most) != 1:
        raise TypeError(f"{name}: a duration or size needs both bounds, ge and le, to be a field of a resource")
    return Between(text(least[0]), text(most[0]))
