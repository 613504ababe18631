"""bench/operator_scale.py fails where idle shards cost too much, whatever the machine."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

import bench.operator_scale as scale
from bench.operator_bars import MEMORY, MEMORY_OF_50, broken

WELL = {"idle_requests": 1.0, "idle_writes": 0, "memory": 120 << 20}


@pytest.mark.parametrize("shards", [50, 2050])
def test_what_was_measured_is_accepted(shards: int) -> None:
    assert broken(shards, **WELL) == []


@pytest.mark.parametrize(
    ("shards", "change", "fault"),
    [
        (50, {"idle_writes": 1}, "50 shards: 1 writes while nothing changes, of 0"),
        (50, {"idle_requests": 2.1}, "50 shards: 2.1 requests a second while idle, of 2"),
        (50, {"memory": MEMORY_OF_50 + (1 << 20)}, "50 shards: 201 MiB of memory, of 200"),
        (2050, {"idle_requests": 5.1}, "2050 shards: 5.1 requests a second while idle, of 5"),
        (2050, {"memory": MEMORY + (1 << 20)}, "2050 shards: 601 MiB of memory, of 600"),
    ],
)
def test_what_is_too_much_is_named(shards: int, change: dict[str, float], fault: str) -> None:
    assert broken(shards, **{**WELL, **change}) == [fault]


@pytest.mark.parametrize(("writes", "code"), [(0, 0), (1, 1)])
def test_the_exit_code_is_that_of_the_bars(monkeypatch: pytest.MonkeyPatch, writes: int, code: int) -> None:
    figures = scale.Figures(50, 1.0, 30.0, 2000, 1000, 10.0, 1.0, writes, 0.05, 120 << 20)
    reactions = scale.Reactions(1.0, 60.0, 10.0, 0)
    monkeypatch.setattr(scale, "measure", lambda trial: (figures, reactions))
    app = scale.typer.Typer()
    app.command()(scale.main)

    done = CliRunner().invoke(app, ["--shards", "50"])

    assert done.exit_code == code, done.output
    assert ("writes while nothing changes" in done.output) == bool(writes)


def test_each_namespace_gets_its_part_of_the_shards() -> None:
    assert scale.Trial(8, 3, "60s", 1.0).sizes == {"scale-0": 3, "scale-1": 3, "scale-2": 2}
    assert scale.Trial(8, 1, "60s", 1.0).sizes == {"scale": 8}


def test_more_namespaces_than_shards_are_refused_before_anything_is_created(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scale, "measure", lambda trial: pytest.fail("measured"))
    app = scale.typer.Typer()
    app.command()(scale.main)

    done = CliRunner().invoke(app, ["--shards", "50", "--shards", "2", "--namespaces", "3"])

    assert done.exit_code == 2, done.output
    assert "2 shards cannot be divided over 3" in done.output
