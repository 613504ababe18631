"""What all values of the contract share: frozen, written and read as JSON, by the rules of the package."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel


class NotUnderstood(ValueError):
    """An answer lacks a required key or has a value of another type: its sender speaks another contract."""


def absent(value: object) -> bool:
    """Whether a key is left out of what is written: for those of which null and absent are the same."""
    return value is None


class _Value(BaseModel):
    model_config = ConfigDict(
        frozen=True, alias_generator=to_camel, populate_by_name=True, use_attribute_docstrings=True
    )


class Answer(_Value):
    """An answer, or a part of one. Unknown keys are ignored: they are a later version's."""

    model_config = ConfigDict(extra="ignore")

    def written(self) -> dict[str, Any]:
        """The JSON object to send."""
        return self.model_dump(mode="json", by_alias=True)

    @classmethod
    def key(cls, name: str) -> str:
        """The JSON key of the attribute `name`. Raises KeyError for one that the contract does not have."""
        return cls.model_fields[name].serialization_alias or name

    @classmethod
    def parse(cls, content: str | bytes | Mapping[str, Any]) -> Self:
        """The value of a JSON text or object. Raises NotUnderstood naming the keys at fault."""
        try:
            if isinstance(content, str | bytes):
                return cls.model_validate_json(content)
            return cls.model_validate(content)
        except ValidationError as error:
            raise NotUnderstood("; ".join(faults(error))) from None


class Request(_Value):
    """The body of a request. An unknown key is an error: ignoring it would do less than was asked. So is a value of
    another type, such as `false` for a number: what was meant is not guessed."""

    model_config = ConfigDict(extra="forbid", strict=True)

    def written(self) -> dict[str, Any]:
        """The JSON object to send, without what equals its default: an older program refuses keys it does not know."""
        return self.model_dump(mode="json", by_alias=True, exclude_defaults=True)


class PersonalRequest(Request):
    """A request of which it is logged who asks."""

    by: str = Field(min_length=1, max_length=200)
    """The name of the person or program."""


class ReasonedRequest(PersonalRequest):
    """A request of which it is logged who asks and why."""

    why: str = Field(min_length=1, max_length=1000)
    """Why, for those who wonder later."""


def faults(error: ValidationError) -> list[str]:
    """One line for each key at fault, without the value that was given."""
    return [f"{'.'.join(map(str, each['loc'])) or 'body'}: {each['msg']}" for each in error.errors()]


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One request that a program answers: `answer` as JSON with code 200, one of `refusals` as text otherwise.

    `path` has parameters in braces, as aiohttp and OpenAPI write them; `query` is parameters to their meanings.
    `many`: the answer is a list of such values.
    """

    method: str
    path: str
    summary: str
    answer: type[Answer]
    request: type[Request] | None = None
    many: bool = False
    refusals: Mapping[int, str] = field(default_factory=dict)
    query: Mapping[str, str] = field(default_factory=dict)

    def at(self, **parameters: str) -> str:
        """The path with its parameters filled in."""
        return self.path.format(**parameters)
