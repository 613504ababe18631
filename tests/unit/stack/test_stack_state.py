"""The record in the folder: it is all that `status` and `down` have after the starter is gone."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from e2e.stack import Stack, StackError, StackSpec
from e2e.stack.cli import app
from e2e.stack.stack import STATE, read_state, write_state

SPEC = StackSpec(kafka_clusters=3, brokers=2, replicas=4, merge_tree={"a": "1"}, kafka_scram={"u": "p"})


def test_spec_and_ports_come_back_as_they_were(tmp_path: Path) -> None:
    write_state(tmp_path, SPEC, {"zookeeper.client": 2181})

    assert read_state(tmp_path) == (SPEC, {"zookeeper.client": 2181})
    assert [path.name for path in tmp_path.iterdir()] == [STATE]


def test_only_its_owner_may_read_the_record(tmp_path: Path) -> None:
    write_state(tmp_path, SPEC, {})

    assert (tmp_path / STATE).stat().st_mode & 0o077 == 0, "it holds the passwords of the SASL listener"


def test_an_attached_stack_has_the_recorded_shape_and_addresses(tmp_path: Path) -> None:
    first = Stack(tmp_path, SPEC)
    ports = {name: server.port for name, server in first.servers.items()}  # type: ignore[attr-defined]
    write_state(tmp_path, SPEC, first._ports.as_dict())

    attached = Stack.attach(tmp_path)

    assert attached.spec == SPEC
    assert {name: server.port for name, server in attached.servers.items()} == ports  # type: ignore[attr-defined]


def test_another_shape_in_the_same_folder_is_refused_and_named(tmp_path: Path) -> None:
    write_state(tmp_path, SPEC, {})

    with pytest.raises(StackError, match=r"replicas 4, not 2.*stack down"):
        Stack(tmp_path, StackSpec(kafka_clusters=3, brokers=2))


def test_passwords_are_not_shown_when_they_differ(tmp_path: Path) -> None:
    write_state(tmp_path, StackSpec(kafka_scram={"loader": "s3cret"}), {})

    with pytest.raises(StackError, match="kafka_scram") as refusal:
        Stack(tmp_path, StackSpec(kafka_scram={"loader": "0ther"}))
    assert "s3cret" not in str(refusal.value)
    assert "0ther" not in str(refusal.value)


def test_an_unreadable_record_is_named(tmp_path: Path) -> None:
    (tmp_path / STATE).write_text("{")

    with pytest.raises(StackError, match=STATE):
        Stack.attach(tmp_path)


@pytest.mark.parametrize("command", ["status", "down"])
def test_without_a_stack_the_commands_explain_how_to_start_one(tmp_path: Path, command: str) -> None:
    result = CliRunner().invoke(app, [command, "--folder", str(tmp_path)])

    assert isinstance(result.exception, StackError)
    assert "blockhouse stack up" in str(result.exception)


def test_up_refuses_other_sizes_than_the_recorded_ones(tmp_path: Path) -> None:
    write_state(tmp_path, SPEC, {})

    result = CliRunner().invoke(app, ["up", "--folder", str(tmp_path), "--replicas", "3"])

    assert isinstance(result.exception, StackError)
    assert "(replicas 4, not 3)" in str(result.exception)


def test_status_of_a_stack_that_is_down_ends_with_its_own_code(tmp_path: Path) -> None:
    write_state(tmp_path, StackSpec(kafka_clusters=1, replicas=1), {})

    result = CliRunner().invoke(app, ["status", "--folder", str(tmp_path)])

    assert result.exit_code == 3
    assert result.output.count("down") == 3


def test_delete_spares_what_the_stack_did_not_write(tmp_path: Path) -> None:
    stack = Stack(tmp_path, StackSpec(kafka_clusters=1, replicas=1))
    stack.zookeeper.folder.mkdir()
    (tmp_path / "mine.txt").write_text("kept")

    stack.delete()

    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]
