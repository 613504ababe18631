"""What all parts of the resources share: frozen values, camelCase outside, and the constraints that the CRDs state too.

The models, and the settings of `blockhouse.config` that they declare (`declared.py`), are the only description of the
resources: `crds/` and `docs/reference.md` are generated from them
(`schema.py`, `reference.py`), so a field's docstring is what users read in `kubectl explain`.
"""

from __future__ import annotations

import marshal
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Self
from weakref import WeakValueDictionary

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ModelWrapValidatorHandler,
    ValidationInfo,
    model_validator,
)
from pydantic.alias_generators import to_camel

from blockhouse.config.units import DURATION, PERCENT, SIZE, fraction, seconds, size_bytes


@dataclass(frozen=True, slots=True)
class Rule:
    """A CEL rule of the CRD: the API server refuses what breaks it. `self` and `oldSelf` as in Kubernetes.

    The same must hold in the model's own validators where it needs no `oldSelf`: an object may be older than the rule.
    """

    expression: str
    message: str


IMMUTABLE = Rule("self == oldSelf", "cannot be changed: create a new pipeline instead")


def listed(values: Iterable[str | int]) -> str:
    """The items of a list in a CEL rule: `'a', 'b'`."""
    return ", ".join(f"'{value}'" if isinstance(value, str) else str(value) for value in values)


@dataclass(frozen=True, slots=True)
class ListMap:
    """Marks a list whose order has no meaning: items are distinguished by `key`, which must be unique."""

    key: str = "name"


class Shared:
    """Parts that are in use, by their content: of thousands of shards most are equal, and take one place."""

    LARGEST = 4096
    """Bytes of a content: larger ones are whole specs, each of which is another."""

    def __init__(self) -> None:
        self._parts: WeakValueDictionary[tuple[type, bytes], Any] = WeakValueDictionary()

    def __len__(self) -> int:
        return len(self._parts)

    def part(self, kind: type[Any], content: Any, made: Callable[[Any], Any]) -> Any:
        """One that is equal, or a new one."""
        try:
            key = kind, marshal.dumps(content, 2)  # later versions write equal contents differently
        except ValueError:  # of YAML: a date, for one
            return made(content)
        if len(key[1]) > self.LARGEST:
            return made(content)
        found = self._parts.get(key)
        return found if found is not None else self._parts.setdefault(key, made(content))


class Part(BaseModel):
    """One object inside a resource. Unknown fields are ignored: a newer CRD may be served to an older operator
    during an upgrade; the API server itself warns a user about fields that the CRD does not know."""

    model_config = ConfigDict(
        frozen=True, extra="ignore", alias_generator=to_camel, populate_by_name=True, use_attribute_docstrings=True
    )

    rules: ClassVar[tuple[Rule, ...]] = ()
    declared: ClassVar[tuple[Any, ...]] = ()
    """Which of its fields are settings of a program; see `declared.py`."""

    @model_validator(mode="wrap")
    @classmethod
    def _shared(cls, content: Any, handler: ModelWrapValidatorHandler[Self], info: ValidationInfo) -> Self:
        """The part of the same content that is in use, where the context is a `Shared`."""
        if not isinstance(info.context, Shared) or not isinstance(content, dict):
            return handler(content)
        found: Self = info.context.part(cls, content, handler)
        return found

    @model_validator(mode="after")
    def _markers_hold(self) -> Self:
        """The API server sees to it for CRDs of today; an object may be older."""
        for name, field in type(self).model_fields.items():
            value = getattr(self, name)
            for marker in field.metadata:
                if isinstance(marker, ListMap):
                    keys = [getattr(item, marker.key) for item in value]
                    if len(set(keys)) != len(keys):
                        raise ValueError(f"{field.alias}: {marker.key} must differ: {', '.join(map(str, keys))}")
                if isinstance(marker, Between) and not marker.accepts(value):
                    raise ValueError(f"{field.alias}: {value}: {marker.words}")
        return self


@dataclass(frozen=True, slots=True)
class IntOrString:
    """Marks a text that may also be given as an integer, as Kubernetes quantities are."""


def text(value: object) -> object:
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


Duration = Annotated[str, Field(pattern=DURATION, max_length=16)]
"""`500ms`, `10s`, `5m`, `1h`."""
Size = Annotated[str, BeforeValidator(text), IntOrString(), Field(pattern=SIZE, max_length=20)]
"""Bytes, or with Ki, Mi, Gi, Ti."""
Fraction = Annotated[str, Field(pattern=PERCENT, max_length=16)]
"""`70%`: JSON numbers with a fraction lose digits."""
Quantity = Annotated[
    str,
    BeforeValidator(text),
    IntOrString(),
    Field(pattern=r"^[0-9]+(\.[0-9]+)?(m|k|M|G|T|Ki|Mi|Gi|Ti)?$", max_length=20),
]
"""A Kubernetes quantity: `500m`, `2`, `4Gi`."""


@dataclass(frozen=True, slots=True)
class Between:
    """Bounds of a Size, Duration or Fraction, both included, for models and CRDs alike: `Between("1s", "1h")`."""

    least: str
    most: str

    def accepts(self, value: str) -> bool:
        measure = self._measure
        return measure(self.least) <= measure(value) <= measure(self.most)

    @property
    def _measure(self) -> Callable[[str], float]:
        if re.match(SIZE, self.least):
            return size_bytes
        return fraction if re.match(PERCENT, self.least) else seconds

    @property
    def rule(self) -> Rule:
        if re.match(SIZE, self.least):
            size = "(type(self) == int ? int(self) : quantity(string(self)).asInteger())"
            bounds = f"{size} >= {size_bytes(self.least)} && {size} <= {size_bytes(self.most)}"
        elif re.match(PERCENT, self.least):
            percent = "double(self.replace('%', ''))"
            least, most = (float(bound.rstrip("%")) for bound in (self.least, self.most))
            bounds = f"{percent} >= {least} && {percent} <= {most}"
        else:
            bounds = f"duration(self) >= duration('{self.least}') && duration(self) <= duration('{self.most}')"
        return Rule(bounds, self.words)

    @property
    def words(self) -> str:
        return f"expected from {self.least} to {self.most}"


Label = Annotated[str, Field(pattern=r"^[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?$", max_length=32)]
"""A short lower-case name, as Kubernetes has them."""
ObjectName = Annotated[str, Field(pattern=r"^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$", max_length=253)]
"""Name of a Kubernetes object in the resource's own namespace."""
Key = Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]+$", max_length=253)]
"""Key of a Secret or ConfigMap."""
Text = Annotated[str, Field(max_length=1024)]
"""A short text."""
LabelMap = Annotated[dict[str, Annotated[str, Field(max_length=253)]], Field(max_length=32)]
"""Labels or settings: text to text."""
