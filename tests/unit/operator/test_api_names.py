"""Names: short enough for Kubernetes, and never the same for two things."""

from __future__ import annotations

import re

from hypothesis import example, given
from hypothesis import strategies as st

from blockhouse_operator.api import names
from blockhouse_operator.api.parts import MAX_REPLICAS_PER_ZONE, MAX_SHARDS, Zone

ZONE = next(m.pattern for m in Zone.model_fields["name"].metadata if getattr(m, "pattern", None))
STATEFUL_SET, SERVICE = 52, 63
SERVICE_NAME = re.compile(r"[a-z]([a-z0-9-]*[a-z0-9])?")

pipelines = st.from_regex(names.PIPELINE, fullmatch=True)
zones = st.from_regex(ZONE, fullmatch=True).filter(lambda zone: len(zone) <= 16)
replicas = st.tuples(pipelines, st.integers(0, MAX_SHARDS - 1), zones, st.integers(0, MAX_REPLICAS_PER_ZONE - 1))


@given(replicas)
@example(("p" * 28, 999, "z" * 16, 15))
@example(("p" * 28, MAX_SHARDS - 1, "z" * 16, 15))
def test_names_fit_and_are_valid(parts: tuple[str, int, str, int]) -> None:
    pipeline, shard, *_ = parts
    if shard >= names.SHARDS_OF_ANY_NAME:
        pipeline = pipeline[: names.LONGEST_OF_MANY].rstrip("-")
        parts = (pipeline, *parts[1:])
    name = names.replica(*parts)

    assert len(name) <= STATEFUL_SET
    assert SERVICE_NAME.fullmatch(name)
    for other in (names.pod(name), names.claim(name), names.shard_config(pipeline, shard), names.verifier(pipeline)):
        assert len(other) <= SERVICE


def test_no_two_replicas_share_a_name() -> None:
    """Exhaustive over small alphabets: a pipeline `a-0` with a zone `b` must not meet a pipeline `a` with `0-b`."""
    atoms = ["a", "b", "0", "1"]
    texts = list(atoms)
    for _ in range(3):
        texts = list({*texts, *(f"{left}-{right}" for left in texts for right in atoms)})
    seen: dict[str, tuple[str, int, str, int]] = {}
    for pipeline in (text for text in texts if re.search(names.PIPELINE, text)):
        for zone in (text for text in texts if re.search(ZONE, text)):
            for shard in (0, 1):
                for index in (0, 1):
                    parts = (pipeline, shard, zone, index)
                    assert seen.setdefault(names.replica(*parts), parts) == parts


def test_a_host_is_the_replicas_service_unless_its_zone_has_another() -> None:
    assert names.replica_host(None, "events-0-a-1", "data") == "events-0-a-1.data.svc"
    assert names.replica_host("{replica}.{namespace}.b.example.net", "r", "data") == "r.data.b.example.net"
