"""The demonstration empties its folder; it must never empty another's."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from blockhouse.errors import BlockhouseError
from e2e.kit.workspace import MARK, stderr_to, workspace


def test_what_an_earlier_demonstration_left_is_removed(tmp_path: Path) -> None:
    folder = tmp_path / "demo"
    with workspace(folder) as home:
        (home / "aggregator-r1").mkdir()
        (home / "aggregator-r1" / "server.log").write_text("old")
        (home / "manifest.jsonl").write_text("old")

    with workspace(folder) as home:
        assert [path.name for path in home.iterdir()] == [MARK]


def test_files_of_something_else_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")

    with pytest.raises(BlockhouseError, match="holds files of something else"), workspace(tmp_path):
        pass

    assert (tmp_path / "thesis.txt").read_text() == "years of work"


def test_a_link_to_something_else_is_removed_not_followed(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "file").touch()
    with workspace(tmp_path / "demo") as home:
        (home / "link").symlink_to(tmp_path / "elsewhere")

    with workspace(tmp_path / "demo") as home:
        assert not (home / "link").exists()

    assert (tmp_path / "elsewhere" / "file").exists()


def test_two_demonstrations_do_not_share_a_folder(tmp_path: Path) -> None:
    with (
        workspace(tmp_path / "demo") as home,
        pytest.raises(BlockhouseError, match="runs in"),
        workspace(home),
    ):
        pass


def test_what_libraries_write_to_descriptor_2_goes_to_the_log(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with stderr_to(tmp_path / "demo.log"):
        os.write(2, b"librdkafka writes\n")
    os.write(2, b"afterwards\n")

    assert (tmp_path / "demo.log").read_text() == "librdkafka writes\n"
    assert capfd.readouterr().err == "afterwards\n"
