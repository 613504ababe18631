"""The CRDs: what the API server would refuse, or what would make its CEL rules too expensive, is refused here first."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import pytest
import yaml
from pydantic import Field

from blockhouse_operator.api import crd, generate
from blockhouse_operator.api.base import Part
from blockhouse_operator.api.conditions import ConditionType, Reason
from blockhouse_operator.api.schema import object_schema, walk
from tests.unit.operator.resources import ROOT

DEFINITIONS = crd.all_definitions()
SPECS = {
    name: found["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    for name, found in DEFINITIONS.items()
}
STATUSES = {
    name: found["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"]
    for name, found in DEFINITIONS.items()
}
FIELDS = [(name, path, field) for name, spec in SPECS.items() for path, field in walk(spec)]
GENERATED = generate.files(ROOT)
STATUS_FIELDS = [(name, path, field) for name, status in STATUSES.items() for path, field in walk(status)]


@pytest.mark.parametrize("path", GENERATED, ids=lambda path: str(path.relative_to(ROOT)))
def test_generated_files_are_up_to_date(path: Path) -> None:
    assert path.read_text() == GENERATED[path], "run scripts/generate"


def test_every_field_is_documented() -> None:
    undocumented = [f"{name}: {path}" for name, path, field in FIELDS + STATUS_FIELDS if not field.get("description")]

    assert undocumented == []


def test_what_cel_rules_may_read_is_bounded() -> None:
    """Otherwise the API server estimates a rule's cost by the largest request and refuses the definition."""
    unbounded = []
    for name, path, field in FIELDS + STATUS_FIELDS:
        for at, schema in parts(path, field):
            if schema.get("type") == "array" and "maxItems" not in schema:
                unbounded.append(f"{name}: {at}")
            if schema.get("type") == "string" and not {"maxLength", "enum"} & set(schema):
                unbounded.append(f"{name}: {at}")
            if "additionalProperties" in schema and "maxProperties" not in schema:
                unbounded.append(f"{name}: {at}")

    assert unbounded == []


def parts(path: str, field: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """A field, and the schema of its items or values when those are no objects with fields of their own."""
    yield path, field
    if "items" in field:
        yield f"{path}[]", field["items"]
    if "additionalProperties" in field:
        yield f"{path}.*", field["additionalProperties"]


def test_a_list_is_either_a_map_by_a_key_that_is_always_there_or_atomic() -> None:
    for name, path, field in FIELDS + STATUS_FIELDS:
        if field.get("type") == "array":
            keys = field.get("x-kubernetes-list-map-keys", [])
            assert (field["x-kubernetes-list-type"] == "map") == bool(keys), f"{name}: {path}"
            if keys:
                assert set(keys) <= set(field["items"]["required"]), f"{name}: {path}"


def test_every_default_is_accepted_by_its_own_schema() -> None:
    for name, path, field in FIELDS:
        if "default" in field:
            assert accepts(field, field["default"]), f"{name}: {path}"


def test_every_rule_asks_whether_a_field_is_there_that_may_be_missing() -> None:
    """The API server judges a default before it fills in the defaults inside it, and so refuses a definition whose rule
    reads a field that `{}` does not have; of a field without a default users read "no such key"."""
    unguarded = []
    for name, path, field in [*((name, "", spec) for name, spec in SPECS.items()), *FIELDS]:
        for at, schema in parts(path, field):
            for rule in schema.get("x-kubernetes-validations", ()):
                unguarded += [f"{name}: {at}: {missing}" for missing in may_be_missing(schema, rule["rule"])]

    assert unguarded == []


def may_be_missing(schema: Mapping[str, Any], rule: str) -> list[str]:
    """Fields that a rule reads without `has`, and that an object which is judged by it need not have."""
    found = []
    for used in set(re.findall(r"\b(?:self|oldSelf)((?:\.\w+\b(?!\())+)", rule)):
        at: Mapping[str, Any] = schema
        for part in used.strip(".").split("."):
            filled = "default" in at.get("properties", {}).get(part, {}) and at.get("default") != {}
            if part not in at.get("required", ()) and not filled and f"has(self{used})" not in rule:
                found.append(f"self{used}")
                break
            at = at.get("properties", {}).get(part, {})
    return found


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ("self.given == 1 && self.filled == 2 && self.maps.all(k, true)", []),
        ("self.optional == 1", ["self.optional"]),
        ("!has(self.optional) || self.optional == 1", []),
        ("self.empty.filled == 1", ["self.empty.filled"]),
    ],
)
def test_what_a_rule_reads_is_recognised(rule: str, expected: list[str]) -> None:
    filled = {"type": "integer", "default": 2}
    properties = {
        "given": {},
        "filled": filled,
        "optional": {},
        "empty": {"properties": {"filled": filled}, "default": {}},
    }

    assert may_be_missing({"properties": properties, "required": ["given", "maps"]}, rule) == expected


def accepts(schema: Mapping[str, Any], value: Any) -> bool:
    """As much of OpenAPI as defaults need."""
    if schema.get("type") == "object":
        return isinstance(value, dict) and not set(schema.get("required", ())) - set(value)
    if "enum" in schema:
        return value in schema["enum"]
    if schema.get("type") == "integer":
        return isinstance(value, int) and schema.get("minimum", value) <= value <= schema.get("maximum", value)
    if schema.get("type") == "boolean":
        return isinstance(value, bool)
    if schema.get("type") == "array":
        return len(value) <= schema["maxItems"] and all(accepts(schema["items"], each) for each in value)
    return isinstance(value, str) and re.search(schema.get("pattern", ""), value) is not None


def test_a_status_is_never_filled_in_by_the_api_server() -> None:
    assert [path for _, path, field in STATUS_FIELDS if "default" in field] == []


def test_every_pattern_is_one_that_the_api_server_understands() -> None:
    """Go's regular expressions know no look-ahead and no back-references."""
    for _, path, field in FIELDS:
        assert not re.search(r"\(\?[=!<]|\\\d", field.get("pattern", "")), path


def test_status_is_a_subresource_so_that_its_writer_cannot_change_a_spec() -> None:
    for definition in DEFINITIONS.values():
        assert definition["spec"]["versions"][0]["subresources"]["status"] == {}


def test_every_printed_column_leads_to_a_field() -> None:
    for name, definition in DEFINITIONS.items():
        known = {path for path, _ in walk({"properties": {"spec": SPECS[name], "status": STATUSES[name]}})}
        for column in definition["spec"]["versions"][0]["additionalPrinterColumns"]:
            path = re.sub(r"\[\?\(.*?\)\]", "[]", column["jsonPath"].removeprefix("."))
            assert path == "metadata.creationTimestamp" or path in known, column


def test_every_column_of_a_condition_names_one_that_exists() -> None:
    for definition in DEFINITIONS.values():
        for column in definition["spec"]["versions"][0]["additionalPrinterColumns"]:
            for kind in re.findall(r'@\.type=="(\w+)"', column["jsonPath"]):
                assert kind in set(ConditionType)


@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("*.yaml")), ids=lambda path: path.stem)
def test_the_examples_use_no_field_that_the_definition_does_not_know(path: Path) -> None:
    example = next(iter(yaml.safe_load_all(path.read_text())))
    fields = dict(walk(SPECS[f"{example['kind'].lower()}s.ingest.blockhouse.dev.yaml"]))
    free = tuple(f"{at}." for at, field in fields.items() if "additionalProperties" in field)

    used = paths(example["spec"])
    unknown = [at for at in used if at not in fields and not at.startswith(free)]

    assert unknown == []


def paths(value: Any, path: str = "") -> Iterator[str]:
    if isinstance(value, dict):
        for key, inner in value.items():
            at = f"{path}.{key}".removeprefix(".")
            yield at
            yield from paths(inner, at)
    elif isinstance(value, list):
        for inner in value:
            yield from paths(inner, f"{path}[]")


def test_a_model_that_has_no_structural_schema_is_refused() -> None:
    class Loose(Part):
        ratio: float = 1.0
        """Not for CRDs: JSON numbers lose digits."""

    class Silent(Part):
        name: Annotated[str, Field(max_length=3)]

    with pytest.raises(TypeError, match="float"):
        object_schema(Loose)
    with pytest.raises(TypeError, match="docstring"):
        object_schema(Silent)


def test_the_chart_installs_the_same_definitions_and_keeps_them() -> None:
    for name, definition in DEFINITIONS.items():
        text = (ROOT / "charts" / "blockhouse" / "templates" / "crds" / name).read_text()
        installed = yaml.safe_load("\n".join(line for line in text.splitlines() if not line.startswith("{{")))

        assert installed["metadata"].pop("annotations") == {"helm.sh/resource-policy": "keep"}
        assert installed == definition


def test_every_reason_is_one_word_with_a_meaning() -> None:
    for reason in Reason:
        assert re.fullmatch(r"[A-Z][A-Za-z]+", reason)
        assert reason.meaning.endswith(".")
