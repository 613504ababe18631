"""Settings are declared once: each is a field of the resource, or is set by the operator for a stated reason."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
from pydantic import BaseModel, Field

from blockhouse.config import endpoints
from blockhouse.config import pipeline as settings
from blockhouse.config.base import Settings
from blockhouse.config.mirror import MirrorConfig
from blockhouse.config.pipeline import AggregatorConfig
from blockhouse.config.units import Duration, seconds, size_bytes
from blockhouse.config.verifier import VerifierConfig
from blockhouse_operator.api import crd
from blockhouse_operator.api.base import Part
from blockhouse_operator.api.declared import declares, given
from blockhouse_operator.api.mirror import KafkaMirrorSpec
from blockhouse_operator.api.parts import AggregatorSpec, Blocks, Spark, VerifierSpec
from blockhouse_operator.api.pipeline import BlockAggregatorSpec
from blockhouse_operator.api.resolve import resolve
from blockhouse_operator.api.resource import parse_block_aggregator, parse_mirror
from blockhouse_operator.api.schema import walk
from blockhouse_operator.desired import mirror, verifier
from blockhouse_operator.desired.settings import (
    BY_THE_OPERATOR,
    BY_THE_OPERATOR_OF_THE_MIRROR,
    BY_THE_OPERATOR_OF_THE_VERIFIER,
    document,
)
from blockhouse_operator.desired.settings import aggregator as aggregator_settings
from blockhouse_operator.desired.settings import mirror as mirror_settings
from blockhouse_operator.desired.settings import verifier as verifier_settings
from blockhouse_operator.desired.spec_hash import spec_hash
from tests.unit.operator.resources import ROOT, block_aggregator

EXISTING = ROOT / "examples" / "existing-clickhouse.yaml"
TWO_DATACENTERS = ROOT / "examples" / "two-datacenters.yaml"


def inner(annotation: Any, kind: type[BaseModel]) -> type[BaseModel] | None:
    """The model of a kind inside an annotation."""
    if isinstance(annotation, type):
        return annotation if issubclass(annotation, kind) else None
    return next((found for each in get_args(annotation) if (found := inner(each, kind))), None)


def declarations(part: type[BaseModel], path: str = "spec") -> Iterator[tuple[str, type[Settings], str]]:
    """(path in the resource, section, name in the section) of every field below a part that is a setting."""
    assert issubclass(part, Part)
    own = {own: (each.section, name) for each in part.declared for name, own in each.names.items()}
    for name, field in part.model_fields.items():
        at = f"{path}.{field.alias}"
        below = inner(field.annotation, Part)
        if below is not None:
            yield from declarations(below, at)
        elif name in own:
            yield at, *own[name]


DECLARED = list(declarations(BlockAggregatorSpec))
OF_THE_MIRROR = list(declarations(KafkaMirrorSpec))
SCHEMA = dict(walk(crd.block_aggregator()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]))


MIRROR_SCHEMA = dict(walk(crd.kafka_mirror()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]))
ALL = [
    (AggregatorConfig, BY_THE_OPERATOR),
    (VerifierConfig, BY_THE_OPERATOR_OF_THE_VERIFIER),
    (MirrorConfig, BY_THE_OPERATOR_OF_THE_MIRROR),
]


def leaves(section: type[BaseModel], path: str = "") -> Iterator[tuple[str, type[Settings], str]]:
    """(path in the file, section, name) of every setting."""
    assert issubclass(section, Settings)
    for name, field in section.model_fields.items():
        suffix = "[]" if str(field.annotation).startswith("tuple") else ""
        below = inner(field.annotation, Settings)
        if below is not None:
            yield from leaves(below, f"{path}{field.alias}{suffix}.")
        else:
            yield f"{path}{field.alias}", section, name


def below(path: str, reasons: Any) -> bool:
    return any(path == reason or path.startswith((f"{reason}.", f"{reason}[")) for reason in reasons)


@pytest.mark.parametrize(("model", "reasons"), ALL)
def test_every_setting_is_a_field_of_the_resource_or_set_by_the_operator(model: type[Settings], reasons: Any) -> None:
    found = OF_THE_MIRROR if model is MirrorConfig else [*DECLARED, *declarations_of_the_shard()]
    known = [(section, name) for _, section, name in found]
    unreachable, twice = [], []
    for path, section, name in leaves(model):
        declared = any(issubclass(section, each) and name == field for each, field in known)
        if declared is below(path, reasons):
            (twice if declared else unreachable).append(path)
    # the limits of one table are the same settings as those of all tables
    assert unreachable == []
    assert [path for path in twice if not path.startswith("blocks.tables.")] == []


def declarations_of_the_shard() -> Iterator[tuple[str, type[Settings], str]]:
    """`kafka.deadLetterTemplate` becomes the shard's topic."""
    from blockhouse_operator.api.shard import ClickHouseShardIngestSpec

    return declarations(ClickHouseShardIngestSpec)


@pytest.mark.parametrize(("model", "reasons"), ALL)
def test_every_reason_is_about_a_setting_that_there_is(model: type[Settings], reasons: Any) -> None:
    paths = [path for path, _, _ in leaves(model)]

    assert [reason for reason in reasons if not any(below(path, [reason]) for path in paths)] == []


def another(field: dict[str, Any]) -> Any:
    """A value that is not the default."""
    if "enum" in field:
        return next(value for value in field["enum"] if value != field.get("default"))
    if "additionalProperties" in field:
        return {"7": "seven"}
    if field.get("type") == "array":
        return ["01:00-02:00"]
    match field.get("type"):
        case "boolean":
            return not field["default"]
        case "integer":
            return field["default"] + 1
    rules = str(field.get("x-kubernetes-validations", ""))
    if "duration('10s')" in rules:
        return "20s"
    if "duration(self)" in rules:
        return "2s" if field["default"] != "2s" else "3s"
    if "double(self" in rules:
        return "42%"
    return "2Mi" if field.get("x-kubernetes-int-or-string") else "another"


def files(*changes: tuple[str, Any], path: Path) -> tuple[str, str, str, str]:
    """The aggregator's file and revision, and the verifier's."""
    pipeline = parse_block_aggregator(block_aggregator(*changes, path=path))
    spec = resolve(pipeline, 0)
    replica = spec.replicas[0]
    own = document(aggregator_settings(spec, replica)), spec_hash(spec, replica)
    return *own, document(verifier_settings(pipeline)), verifier.spec_hash(pipeline)


@pytest.mark.parametrize("path", [path for path, _, _ in DECLARED] + ["spec.kafka.deadLetterTemplate"])
def test_a_changed_field_reaches_the_file_and_restarts_the_program_that_reads_it(path: str) -> None:
    field = SCHEMA[path.removeprefix("spec.").replace("tables.", "tables[].")]
    value = "dead-{shard}" if path.endswith("Template") else another(dict(field))
    example = EXISTING if ".existing." in path else TWO_DATACENTERS

    before = files(path=example)
    after = files((path.replace("tables.", "tables.1."), value), path=example)

    ours = slice(2, 4) if path.startswith("spec.verifier.") else slice(0, 2)
    assert all(new != old for new, old in zip(after[ours], before[ours], strict=True))
    if not path.startswith("spec.verifier."):
        assert after[2:] == before[2:], "the verifier does not restart for it"


@pytest.mark.parametrize("path", [path for path, _, _ in OF_THE_MIRROR if path != "spec.delivery"])
def test_a_changed_field_of_a_mirror_reaches_its_file_and_replaces_its_pod(path: str) -> None:
    def made(*changes: tuple[str, Any]) -> tuple[str, str]:
        found = parse_mirror(block_aggregator(*changes, path=ROOT / "examples" / "mirror.yaml"))
        return document(mirror_settings(found)), mirror.spec_hash(found)

    after = made((path, another(dict(MIRROR_SCHEMA[path.removeprefix("spec.")]))))

    assert all(new != old for new, old in zip(after, made(), strict=True))


def test_the_defaults_of_a_mirror_are_those_of_the_program() -> None:
    clusters = {"source": {"name": "a", "bootstrapServers": "a:1"}, "target": {"name": "b", "bootstrapServers": "b:1"}}
    bare = {"metadata": {"name": "m", "uid": "u"}, "spec": {**clusters, "image": "i"}}
    found = mirror_settings(parse_mirror(bare))

    assert found == MirrorConfig.model_validate({"name": "m", **clusters, "admin": found.admin})


def test_the_defaults_of_the_resource_are_those_of_the_programs() -> None:
    assert settings.Blocks(**given(Blocks(), settings.Blocks)) == settings.Blocks()
    assert settings.Spark(**given(Spark(), settings.Spark)) == settings.Spark()
    found = given(AggregatorSpec(image="a:1"), AggregatorConfig)
    assert found.keys() >= {"window_flush", "handover_after", "faults"}
    for name, value in {**found, **given(VerifierSpec(), VerifierConfig)}.items():
        model = AggregatorConfig if name in found else VerifierConfig
        default = model.model_fields[name].get_default(call_default_factory=True)
        if isinstance(default, Settings):
            assert type(default)(**value) == default
        else:
            assert value == default or seconds(value) == default, name


RELEASED = {
    "blocks.maxBytes": "10Mi",
    "blocks.maxRows": 100_000,
    "blocks.maxAge": "1s",
    "blocks.growToBytes": "64Mi",
    "blocks.maxBytesPerRound": "96Mi",
    "kafka.sessionTimeout": "20s",
    "kafka.weakOffsetsTopic": "warn",
    "clickhouse.existing.port": 9000,
    "clickhouse.existing.user": "default",
    "aggregator.spark.master": "local[8]",
    "aggregator.unknownTable": "wait",
    "aggregator.defaultFormat": "rows",
    "aggregator.provenance": "warn",
    "aggregator.handoverAfter": "10s",
    "aggregator.shutdownBudget": "25s",
    "aggregator.logLevel": "info",
}


def test_a_released_default_is_never_changed_nor_written_otherwise() -> None:
    """It would restart every pod whose resource has the value: never change the right side, only add to it."""
    assert {path: SCHEMA[path]["default"] for path in RELEASED} == RELEASED


def test_the_bounds_of_the_crd_are_those_of_the_programs() -> None:
    rule = SCHEMA["blocks.maxBytesPerRound"]["x-kubernetes-validations"][0]
    assert str(size_bytes("1Ti")) in rule["rule"]
    assert SCHEMA["kafka.sessionTimeout"]["x-kubernetes-validations"][0]["message"] == "expected from 1s to 30m"
    assert SCHEMA["clickhouse.connectTimeout"]["default"] == "5s"
    assert endpoints.ClickHouse.model_fields["connect_timeout_seconds"].get_default() == 5


def test_a_setting_that_no_crd_can_express_is_refused() -> None:
    class Section(Settings):
        endless: Duration = Field(default=1, ge=0)
        """Without an upper bound."""
        place: Path = Path("/")
        """The operator decides about files."""

    for name, text in (("endless", "needs both bounds"), ("place", "cannot be a field")):
        with pytest.raises(TypeError, match=text):
            declares(Section, name)(Part)
