"""`blockhouse metadata`: JSON of all three versions, back again, and a clear no to rubbish."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest

from blockhouse import cli

OURS = "2;r1;ZrK3cW8zTKi0qU1yq1p9Ng;1x;mvx7lcvv;3;xc;1s;4k.46.0.4;1.0.1r.14.1051uoct,6~a.a;0x5pamf;"
"""Table 1 in flight [1200, 1263], table 7 lagging from 1210, P = 1264 (the example of the documentation)."""


class Terminal:
    """Runs the command line in this process and keeps what it printed."""

    def __init__(self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
        self.capsys, self.monkeypatch = capsys, monkeypatch

    def run(self, *arguments: str, stdin: str = "") -> tuple[int, str, str]:
        self.monkeypatch.setattr("sys.stdin", io.StringIO(stdin))
        with pytest.raises(SystemExit) as exit_:
            cli.main(["metadata", *arguments])
        printed = self.capsys.readouterr()
        assert isinstance(exit_.value.code, int)
        return exit_.value.code, printed.out, printed.err

    def decode(self, *arguments: str) -> Any:
        code, out, err = self.run("decode", *arguments)
        assert code == 0, err
        return json.loads(out)


@pytest.fixture
def terminal(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Terminal:
    return Terminal(capsys, monkeypatch)


def test_version_0_is_shown(terminal: Terminal) -> None:
    shown = terminal.decode("clicks,1,10,views,5,14")

    assert shown == {
        "version": 0,
        "replica": None,
        "reference": None,
        "committed_offset": 1,
        "tables": {
            "clicks": {"begin": 1, "end": 10, "count": None},
            "views": {"begin": 5, "end": 14, "count": None},
        },
    }


def test_version_1_is_shown(terminal: Terminal) -> None:
    shown = terminal.decode("1,,r1,clicks,1,10,10,,-1")

    assert (shown["version"], shown["replica"], shown["reference"]) == (1, "r1", -1)
    assert shown["tables"] == {"clicks": {"begin": 1, "end": 10, "count": 10}}


def test_version_2_is_shown_with_absolute_offsets_and_names(terminal: Terminal) -> None:
    shown = terminal.decode("--offset", "1200", "--names", "1=db.clicks", OURS)

    assert (shown["version"], shown["replica"], shown["reference"]) == (2, "r1", 1100)
    assert (shown["position"], shown["seq"], shown["committed_offset"]) == (1264, 69, 1200)
    assert shown["window"] == {"reference": 1100, "sealed": 150, "dead": 0, "holes": 4, "pending": 10}
    clicks, lagging = shown["tables"]["db.clicks"], shown["tables"]["7"]
    assert (clicks["begin"], clicks["end"], clicks["count"], clicks["crc"]) == (1200, 1263, 40, 0x1234ABCD)
    assert (lagging["begin"], lagging["end"], lagging["cursor"], lagging["pending"]) == (1210, 1209, 1210, 10)


@pytest.mark.parametrize("text", ["1,,r1,clicks,1,10,10,views,15,14,4,,0", "1,,r1,,-1", OURS])
def test_what_decode_prints_encode_reads(terminal: Terminal, text: str) -> None:
    _, shown, _ = terminal.run("decode", text)

    assert terminal.run("encode", stdin=shown) == (0, text + "\n", "")
    assert terminal.run("encode", "--version", text[0], shown) == (0, text + "\n", "")


def test_names_do_not_get_in_the_way_of_encoding(terminal: Terminal) -> None:
    _, shown, _ = terminal.run("decode", "--names", "1=db.views,7=db.clicks", OURS)

    assert terminal.run("encode", stdin=shown)[1] == OURS + "\n"


@pytest.mark.parametrize("rubbish", ["", "hello", "1,,r1,t,1,2,,0", OURS[:-5], OURS.replace("xc", "xd"), "é", "3;a;b"])
def test_rubbish_is_refused_in_one_line(terminal: Terminal, rubbish: str) -> None:
    code, out, err = terminal.run("decode", rubbish)

    assert (code, out) == (1, "")
    assert err.startswith("error: metadata unreadable: ")
    assert err.count("\n") == 1


def test_the_wrong_offset_is_refused(terminal: Terminal) -> None:
    code, _, err = terminal.run("decode", "--offset", "1199", OURS)

    assert code == 1
    assert "belongs to offset 1200, but was committed with 1199" in err


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ("{", "not the JSON of a metadata"),
        ('{"tables": {}}', "version None cannot be written"),
        ('{"version": 1, "tables": {}}', "needs a replica and a reference"),
        ('{"version": 1, "replica": "r", "reference": 0, "tables": {"t": {"begin": 1}}}', "tables.t.end"),
        ('{"version": 1, "replica": "r", "reference": 0, "tables": {}, "extra": 1}', "extra"),
        ('{"version": 2, "replica": "r", "tables": {}}', "needs window"),
    ],
)
def test_an_incomplete_document_is_not_written(terminal: Terminal, document: str, message: str) -> None:
    code, out, err = terminal.run("encode", document)

    assert (code, out) == (1, "")
    assert message in err


def test_metadata_of_ours_is_not_written_as_version_1(terminal: Terminal) -> None:
    _, shown, _ = terminal.run("decode", OURS)

    code, _, err = terminal.run("encode", "--version", "1", stdin=shown)

    assert code == 1
    assert "version 2 cannot be written as version 1" in err


@pytest.mark.parametrize("names", ["1", "x=a", "1=", "1=a,2=a"])
def test_wrong_names_are_wrong_usage(terminal: Terminal, names: str) -> None:
    assert terminal.run("decode", "--names", names, OURS)[0] == 2
