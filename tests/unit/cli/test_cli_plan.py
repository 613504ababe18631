"""`blockhouse plan`: options and file, JSON, exit codes, and errors that state what is wrong."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from blockhouse import cli

OPTIONS = ("--rows-per-second", "100000", "--bytes-per-row", "105", "--rows-per-message", "10", "--shards", "1")


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as exit_:
        cli.main(["plan", *arguments])
    printed = capsys.readouterr()
    assert isinstance(exit_.value.code, int)
    return exit_.value.code, printed.out, printed.err


def test_json_names_each_figure_with_its_formula_and_where_its_constants_are_from(
    capsys: pytest.CaptureFixture[str],
) -> None:
    code, out, _ = run(capsys, *OPTIONS, "--retention", "2h", "--json")

    document = json.loads(out)
    assert code == 0
    assert document["demand"]["retention"] == 7200
    assert document["figures"]["replicas"]["value"] == 3
    assert all(each["formula"] and each["source"] for each in document["figures"].values())
    assert document["warnings"] == []
    assert document["notKnown"]


def test_a_plan_that_something_stands_against_is_shown_and_ends_with_1(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, *OPTIONS, "--replicas", "2")

    assert code == 1
    assert "warning: without one replica, 1 of 2 replicas remain" in out
    assert "partitions" in out


def test_an_option_counts_before_the_field_of_the_file(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "demand.yaml"
    file.write_text("{bytesPerSecond: 40Mi, bytesPerRow: 1Ki, shards: 2, maxAge: 5s}")

    code, out, _ = run(capsys, str(file), "--shards", "4", "--json")

    document = json.loads(out)
    assert code == 0
    assert document["figures"]["shards"]["value"] == 4
    assert document["figures"]["rowsPerShard"]["value"] == 10_240
    assert document["demand"]["maxAge"] == 5


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("--bytes-per-row", "105", "--shards", "1"), "give either rowsPerSecond or bytesPerSecond"),
        ((*OPTIONS, "--rows-per-shard", "10"), "give either shards or rowsPerShard"),
        (("--rows-per-second", "1", "--shards", "1"), "bytesPerRow: missing: expected size"),
        ((*OPTIONS, "--retention", "7d"), "retention: '7d': expected duration"),
        ((*OPTIONS, "--tables", "0"), "tables: 0: expected integer, >= 1"),
        ((*OPTIONS, "--rows-per-second", "inf"), "rowsPerSecond: inf: expected"),
        (("missing.yaml",), "configuration missing.yaml: 1 error"),
    ],
)
def test_what_cannot_be_used_is_named(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], text: str
) -> None:
    code, out, err = run(capsys, *arguments)

    assert (code, out) == (2, "")
    assert text in err


def test_a_field_that_is_misspelt_in_the_file_is_named(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "demand.yaml"
    file.write_text("rowPerSecond: 1\n")

    code, _, err = run(capsys, str(file))

    assert code == 2
    assert "rowPerSecond: 1: unknown field, did you mean rowsPerSecond" in err
