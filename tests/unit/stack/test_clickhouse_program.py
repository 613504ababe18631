"""Which ClickHouse a stack runs, and what is refused before anything is started or changed."""

from __future__ import annotations

import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from e2e.clickhouse_choice import CURRENT, OLDEST, chosen
from e2e.stack import Stack, StackError, StackSpec
from e2e.stack import clickhouse_program as programs
from e2e.standin import SERIES, SHIM

SHIM_SOURCE = Path(__file__).parents[3] / "e2e" / "standin" / "shim.c"


def config(stack: Stack) -> tuple[list[str], ET.Element]:
    server = stack.clickhouse[1, 2]
    server.folder.mkdir(parents=True)
    shell, option, script, *command = server.prepare()
    assert (shell, option) == ("/bin/sh", "-c")
    assert f"serves 127.0.0.1 {stack.zookeeper.port}" in script  # what it waits for before it becomes the server
    return command, ET.parse(server.folder / "config.xml").getroot()


def fake(path: Path) -> str:
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return str(path)


def test_the_current_server_is_the_engine_of_the_lock_file_and_each_replica_keeps_its_own_session(
    tmp_path: Path,
) -> None:
    command, found = config(Stack(tmp_path, StackSpec(clickhouse=CURRENT)))

    assert command[:3] == [sys.executable, "-m", "e2e.standin"]
    assert found.tag == "clickhouse"
    assert found.findtext("zookeeper/sessions_path") == "/clickhouse/sessions/01-r2"
    assert [host.text for host in found.iterfind("listen_host")] == ["127.0.0.1", "127.0.0.2"]
    lock = (Path(__file__).parents[3] / "requirements.lock").read_text()
    assert f"chdb-core=={SERIES}." in lock


def test_the_oldest_server_gets_the_configuration_it_knows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = fake(tmp_path / "clickhouse-server")
    monkeypatch.setattr(programs.shutil, "which", lambda *_, **__: path)

    command, found = config(Stack(tmp_path, StackSpec(clickhouse=OLDEST)))

    assert command[0] == path
    assert found.tag == "yandex"
    assert found.find("zookeeper/sessions_path") is None
    assert found.find("merge_tree/initialization_retry_period") is None  # 18.16 would not start with it


def test_a_server_given_by_its_path_is_used_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = fake(tmp_path / "clickhouse")
    monkeypatch.setattr(programs, "_version", lambda _: (25, 8, 1))

    command, found = config(Stack(tmp_path, StackSpec(clickhouse=path)))

    assert command[:2] == [path, "server"]
    assert found.tag == "clickhouse"
    assert [host.text for host in found.iterfind("listen_host")] == ["127.0.0.1"]


def test_another_version_is_not_taken_for_the_oldest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = fake(tmp_path / "clickhouse-server")
    monkeypatch.setattr(programs.shutil, "which", lambda *_, **__: path)
    monkeypatch.setattr(programs, "_version", lambda _: (25, 8, 1))

    with pytest.raises(StackError, match=r"clickhouse-server is 25\.8\.1: use CLICKHOUSE="):
        programs.program(OLDEST, shard="01", replica="r1")


@pytest.mark.parametrize(("choice", "words"), [("27.1", "must be 26.9, 18.16"), ("/no/where", "no such program")])
def test_what_is_not_there_is_refused(choice: str, words: str) -> None:
    with pytest.raises(StackError, match=words):
        programs.program(choice, shard="01", replica="r1")


def test_the_environment_chooses() -> None:
    assert chosen({"CLICKHOUSE": "/opt/clickhouse"}) == "/opt/clickhouse"
    assert chosen({}) == chosen({"CLICKHOUSE": ""}) == CURRENT
    assert StackSpec(clickhouse=CURRENT) != StackSpec(clickhouse=OLDEST)


CHANGE = """
import ctypes, sys
from e2e.standin.__main__ import make_replica
ctypes.CDLL(sys.argv[1])
make_replica(sys.argv[2], 1)
"""


def refusal(library: str, name: str) -> str:
    ran = subprocess.run([sys.executable, "-c", CHANGE, library, name], capture_output=True, text=True, check=False)
    assert ran.returncode == 1
    return ran.stderr


def test_an_engine_of_another_build_is_left_alone(tmp_path: Path) -> None:
    assert SHIM.exists(), "run `make setup`"
    assert "has build id" in refusal("libm.so.6", "libm.so.6")
    assert "is not loaded" in refusal("libm.so.6", "libnothing.so")


def test_the_bytes_that_are_to_be_changed_are_compared_first(tmp_path: Path) -> None:
    """A library that claims to be the right build, with other code in it."""
    build = next(line.split('"')[1] for line in SHIM_SOURCE.read_text().splitlines() if "#define BUILD_ID" in line)
    (tmp_path / "other.c").write_text("int nothing(void) { return 0; }\n")
    library = tmp_path / "other.so"
    gcc = ["gcc", "-shared", "-fPIC", f"-Wl,--build-id=0x{build}", "-o", str(library), str(tmp_path / "other.c")]
    subprocess.run(gcc, check=True)

    assert "unexpected bytes at 0x147217c0" in refusal(str(library), "other.so")
