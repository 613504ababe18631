"""`blockhouse mirror`: what is shown, what is asked of a running mirror, and what the exit codes mean."""

from __future__ import annotations

import io
import json
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from blockhouse import cli
from blockhouse.cli import build_app
from blockhouse.config.mirror import MirrorConfig
from blockhouse.contract.mirror import MirrorPartition, MirrorStatus, MirrorTask, OffendingPartition
from blockhouse_mirror.audit import judge
from blockhouse_mirror.audit.compare import PartitionAudit, compare
from blockhouse_mirror.commands.view import LATEST, show_partition, show_status, state_of
from tests.unit.mirror.auditing import made
from tests.unit.mirror.driving import SMALLEST

WELL = MirrorPartition(topic="events", partition=0, task="task1", holder="task1", position=5, end=7)
STATUS = MirrorStatus(
    mirror="m",
    source="a",
    target="b",
    delivery="EffectivelyOnce",
    tasks=(MirrorTask(name="task1", running=True, partitions=1, bytes_per_second=1024.0),),
    capped_by="Slots",
    quality=1.0,
    load_age_seconds=3.0,
    rebalances={"Lag": 1},
    moved=1,
    latency_seconds=0.1,
    partitions=(WELL,),
    offending=(),
    errors={},
)


class Mirror:
    """Answers as a mirror would; `asked` are its requests."""

    def __init__(self, status: MirrorStatus, token: str = "") -> None:
        mirror = self

        class Handler(BaseHTTPRequestHandler):
            def answer(self) -> None:
                mirror.asked.append(f"{self.command} {self.path}")
                allowed = not token or self.headers.get("Authorization") == f"Bearer {token}"
                body = mirror.status.written() if self.path == "/status" else {"requested": True}
                self.send_response(200 if allowed else 401)
                self.send_header("Content-Type", "application/json")
                self.end_headers()
                self.wfile.write(json.dumps(body).encode() if allowed else b"who are you?")

            do_GET = do_POST = answer

            def log_message(self, *_: object) -> None:
                pass

        self.status = status
        self.asked: list[str] = []
        self.server = HTTPServer(("127.0.0.1", 0), Handler)


@pytest.fixture
def mirror() -> Iterator[Mirror]:
    made = Mirror(STATUS)
    thread = threading.Thread(target=made.server.serve_forever)
    thread.start()
    yield made
    made.server.shutdown()
    thread.join()
    made.server.server_close()


def file_of(folder: Path, port: int) -> str:
    file = folder / "mirror.yaml"
    file.write_text(f"{SMALLEST}admin: {{port: {port}}}\n")
    return str(file)


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        cli.main(["mirror", *arguments])
    return ended.value.code if isinstance(ended.value.code, int) else 1


@pytest.fixture
def file(mirror: Mirror, tmp_path: Path) -> str:
    return file_of(tmp_path, mirror.server.server_port)


@pytest.mark.parametrize("command", ["run", "status", "explain", "rebalance", "audit", "replay"])
def test_every_command_has_help_with_an_example(command: str) -> None:
    app = build_app(["mirror"])
    result = CliRunner().invoke(app, ["mirror", command, "--help"], env={"COLUMNS": "200", "TERM": "dumb"})

    assert result.exit_code == 0, result.output
    assert f"blockhouse mirror {command}" in result.output.split("Usage:")[1].split("\n", 1)[1]


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({}, 0),
        ({"partitions": (WELL.model_copy(update={"waits": "its task is gone"}),)}, 0),
        ({"partitions": (WELL, WELL.model_copy(update={"stopped": "RecordRefused"}))}, 1),
        ({"errors": {"load": "no answer"}}, 1),
    ],
)
def test_the_exit_code_of_status_is_for_what_does_not_pass_by_itself(
    mirror: Mirror, file: str, changes: dict[str, object], code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    mirror.status = STATUS.model_copy(update=changes)

    assert run("status", "--config", file, "--json") == code

    assert MirrorStatus.parse(capsys.readouterr().out) == mirror.status
    assert mirror.asked == ["GET /status"]


def test_one_partition_is_explained(mirror: Mirror, file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("explain", "--config", file, "events/0", "--json") == 0
    assert json.loads(capsys.readouterr().out) == WELL.written()

    assert run("explain", "--config", file, "events/1") == 1
    assert "mirror m has no partition events/1" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["events", "events/x", "/1", "events/-1"])
def test_what_names_no_partition_is_wrong_usage(file: str, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("explain", "--config", file, name) == 2
    assert "TOPIC/NUMBER" in capsys.readouterr().err


def test_a_rebalance_is_requested(mirror: Mirror, file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("rebalance", "--config", file) == 0

    assert mirror.asked == ["POST /rebalance"]
    assert "mirror m: requested" in capsys.readouterr().out


def test_a_mirror_that_does_not_run_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]

    assert run("status", "--config", file_of(tmp_path, port)) == 1

    error = capsys.readouterr().err
    assert f"mirror m cannot be asked at http://127.0.0.1:{port}/status" in error
    assert "Traceback" not in error


def test_a_refusal_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mirror = Mirror(STATUS, token="secret")
    thread = threading.Thread(target=mirror.server.handle_request)
    thread.start()

    assert run("status", "--config", file_of(tmp_path, mirror.server.server_port)) == 1

    thread.join()
    mirror.server.server_close()
    assert "answers 401: who are you?" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["run", "status", "rebalance", "audit"])
def test_a_wrong_configuration_is_exit_code_2(tmp_path: Path, command: str, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "mirror.yaml"
    file.write_text(SMALLEST + "onGap: Jump\n")

    assert run(command, "--config", str(file)) == 2
    assert "onGap: 'Jump'" in capsys.readouterr().err


# --- audit ------------------------------------------------------------------------------------------------------


def audited(*copies: int) -> PartitionAudit:
    return compare("events", 0, made((1, 2)), made(copies), 0, 9)


@pytest.mark.parametrize(
    ("copies", "code", "verdict"),
    [((1, 2), 0, "exact"), ((1, 2, 2), 1, "NOT EXACT"), ((2, 1), 1, "NOT EXACT"), ((1,), 2, "NOT EXACT")],
)
def test_the_exit_code_of_an_audit_is_worst_for_what_is_lost(
    file: str,
    copies: tuple[int, ...],
    code: int,
    verdict: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(judge, "audit", lambda _: iter([audited(*copies), audited(1, 2)]))

    assert run("audit", "--config", file) == code
    assert f"4 records of 2 partitions: {verdict}" in capsys.readouterr().out.replace("\n", " ")

    assert run("audit", "--config", file, "--json") == code
    first, second = map(json.loads, capsys.readouterr().out.splitlines())
    assert (first["exact"], second["exact"]) == (code == 0, True)


# --- what people read -------------------------------------------------------------------------------------------


def text_of(found: MirrorStatus, width: int = 200) -> str:
    text = io.StringIO()
    show_status(Console(file=text, width=width), found)
    return text.getvalue()


@pytest.mark.parametrize(
    ("partition", "state"),
    [
        (WELL, "mirrored"),
        (WELL.model_copy(update={"holder": ""}), "waits for its task"),
        (WELL.model_copy(update={"waits": "its task is gone"}), "its task is gone"),
        (WELL.model_copy(update={"waits": "x", "stopped": "RecordRefused", "message": "m"}), "RecordRefused: m"),
    ],
)
def test_a_partition_has_one_state(partition: MirrorPartition, state: str) -> None:
    assert state_of(partition) == state


def test_what_stands_still_comes_first_then_the_latest_and_the_rest_is_counted() -> None:
    late = [WELL.model_copy(update={"partition": n, "lag_seconds": 10.0 + n}) for n in range(1, LATEST + 3)]
    stopped = WELL.model_copy(update={"partition": 99, "stopped": "RecordRefused", "message": "too large"})

    text = text_of(STATUS.model_copy(update={"partitions": (WELL, *late, stopped)}))

    lines = [line for line in text.splitlines() if "events/" in line]
    assert "events/99" in lines[0]
    assert "RecordRefused: too large" in lines[0]
    assert f"events/{LATEST + 2} " in lines[1]
    assert len(lines) == LATEST
    assert "and 3 more: --json has all" in text
    assert "events/0 " not in text


def test_what_limits_errs_and_offends_is_shown() -> None:
    heavy = OffendingPartition(topic="events", partition=0, bytes_per_second=5e6, share=2.0, advice="split it")

    text = text_of(STATUS.model_copy(update={"offending": (heavy,), "errors": {"load": "[a] no answer"}}))

    assert "capped by Slots" in text
    assert "offending: events/0" in text
    assert "split it" in text
    assert "load: [a] no answer" in text, "an error is no markup"


def test_an_explanation_has_all_about_a_partition() -> None:
    text = io.StringIO()
    partition = WELL.model_copy(update={"left_out": 3, "skipped": 4, "lag_seconds": 2.5})
    show_partition(Console(file=text, width=200), partition, STATUS)

    for part in ("events/0 of a", "task1", "5 of 7, 2.5 s behind", "3 that came from b; 4 lost to gaps"):
        assert part in text.getvalue()


@pytest.mark.parametrize(("options", "runs"), [([], False), (["--ignore-unknown"], True)])
def test_a_field_of_a_newer_operator_stops_no_mirror(
    options: list[str], runs: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file is written by the operator, which may be newer than the image."""
    started: list[str] = []

    async def run(settings: MirrorConfig) -> int:
        started.append(settings.name)
        return 0

    monkeypatch.setattr("blockhouse_mirror.app.run", run)
    monkeypatch.setattr("blockhouse.logs.configure", lambda *_: None)
    config = tmp_path / "mirror.yaml"
    config.write_text(f"{SMALLEST}shiny: new\n")

    result = CliRunner().invoke(build_app(["mirror", "run"]), ["mirror", "run", *options, "--config", str(config)])

    assert started == (["m"] if runs else [])
    assert (result.exit_code == 0) is runs
