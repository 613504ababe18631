"""Each rule of `scripts/habits` finds what it is for and leaves alone what it is not for."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from scripts.habits import __main__ as command
from scripts.habits import commits, docstrings, documents, shapes, words
from scripts.habits.faults import Fault, Tree

LONG = "".join(f"    x{n} = {n}\n" for n in range(41))


def tree(root: Path, files: Mapping[str, str]) -> Tree:
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    return Tree(root, sorted(files))


def lines_of(faults: object) -> list[tuple[str, int]]:
    return [(fault.path, fault.line) for fault in faults]  # type: ignore[attr-defined]


# --- words ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "the operator is told of it",
        "def was_told(): ...",
        "class WhoeverOwns: ...",
        "x.waitForEver()",
        "it waits for\n# ever",
        "the heirs of a stream",
        "the replica is away",
        "one turn of a key",
        "Nobody reads it",
    ],
)
def test_a_word_of_the_list_is_found_in_prose_and_in_names(text: str) -> None:
    assert list(words.WordList.read().find("core/blockhouse/x.py", text))


@pytest.mark.parametrize(
    "text",
    [
        "a stolden tree",
        "messages turn into columns",
        "a turn into a dead end",
        "keep away from it",
        "unwanted",
        "renews",
    ],
)
def test_other_words_and_other_meanings_are_left_alone(text: str) -> None:
    assert list(words.WordList.read().find("core/blockhouse/x.py", text)) == []


def test_a_word_is_allowed_in_the_files_that_have_a_reason_for_it(tmp_path: Path) -> None:
    page = tmp_path / "words.toml"
    page.write_text(
        '[[words]]\nword = "told|anew"\ninstead = "x"\n'
        '[[allow]]\nfiles = "docs/*.md"\nword = "told"\nreason = "a quotation"\n'
    )
    listed = words.WordList.read(page)

    assert [f.text for f in listed.find("docs/a.md", "told anew")] == ['"anew": write x']
    assert len(list(listed.find("README.md", "told anew"))) == 2


def test_a_word_that_is_allowed_without_a_reason_is_refused(tmp_path: Path) -> None:
    page = tmp_path / "words.toml"
    page.write_text('[[words]]\nword = "a"\ninstead = "b"\n[[allow]]\nfiles = "*"\nword = "a"\nreason = " "\n')
    with pytest.raises(ValueError, match="without a reason"):
        words.WordList.read(page)


def test_the_line_of_a_word_is_that_of_the_file() -> None:
    assert [f.line for f in words.WordList.read().find("a.md", "# a\n\nsomeNames\ntold\n")] == [4]


# --- shapes -----------------------------------------------------------------------------------------------------------


def test_a_long_function_needs_a_reason(tmp_path: Path) -> None:
    found = tree(tmp_path, {"core/blockhouse/a.py": f"class A:\n  def f(self):\n{LONG.replace('    ', '      ')}"})

    assert [f.text.split()[0] for f in shapes.lengths(found, {})] == ["A.f"]
    assert list(shapes.lengths(found, {"function": {"core/blockhouse/a.py::A.f": "why"}})) == []


def test_a_long_file_needs_a_reason_and_none_excuses_400_lines_of_the_product(tmp_path: Path) -> None:
    found = tree(
        tmp_path, {"core/blockhouse/a.py": "\n" * 401, "core/blockhouse/b.py": "\n" * 400, "tests/c.py": "\n" * 401}
    )
    reasons = {"file": dict.fromkeys(found.paths, "why")}

    assert [f.path for f in shapes.lengths(found, {})] == list(found.paths)
    assert [f.path for f in shapes.lengths(found, reasons)] == ["core/blockhouse/a.py"]


def test_a_reason_that_is_no_longer_needed_is_a_fault(tmp_path: Path) -> None:
    found = tree(tmp_path, {"core/blockhouse/a.py": "\n"})
    assert len(list(shapes.lengths(found, {"file": {"core/blockhouse/a.py": "why"}}))) == 1


def test_a_default_over_a_closed_type_needs_assert_never_or_a_reason(tmp_path: Path) -> None:
    text = "match x:\n  case 1: pass\n  case _:{}\n    {}\n"
    found = tree(
        tmp_path,
        {
            "core/blockhouse/bad.py": text.format("", "pass"),
            "core/blockhouse/never.py": text.format("", "assert_never(x)"),
            "core/blockhouse/open.py": text.format("  # open: texts", "pass"),
            "tests/any.py": text.format("", "pass"),
        },
    )
    assert lines_of(shapes.closed_matches(found)) == [("core/blockhouse/bad.py", 3)]


def test_an_object_does_not_write_the_attributes_of_another_one(tmp_path: Path) -> None:
    path = "aggregator/blockhouse_aggregator/runtime/a.py"
    text = "self.a = 1\nself.owner.b = 1\nother.c += 1\nself.d, x.e = 1, 2\nx['f'] = 1\ndel y.g\n"
    assert lines_of(shapes.foreign_writes(tree(tmp_path, {path: text, "core/blockhouse/a.py": text}))) == [
        (path, 2),
        (path, 3),
        (path, 4),
        (path, 6),
    ]


# --- docstrings -------------------------------------------------------------------------------------------------------


def test_what_another_package_imports_needs_a_docstring(tmp_path: Path) -> None:
    found = tree(
        tmp_path,
        {
            "core/blockhouse/a/used.py": '"M"\ndef f(): ...\ndef own(): ...\nclass C:\n  "C"\n  def m(self): ...\n',
            "core/blockhouse/a/near.py": '"""M."""\nfrom blockhouse.a.used import own\n',
            "core/blockhouse/b/far.py": '"""M."""\nfrom blockhouse.a.used import C, f\n',
        },
    )
    assert lines_of(docstrings.check(found)) == [("core/blockhouse/a/used.py", 2), ("core/blockhouse/a/used.py", 6)]


def test_a_command_needs_its_help(tmp_path: Path) -> None:
    found = tree(
        tmp_path,
        {"core/blockhouse/cli.py": '"M"\n@app.command()\ndef run(): ...\n@app.command(help=H)\ndef x(): ...\n'},
    )
    assert lines_of(docstrings.check(found)) == [("core/blockhouse/cli.py", 3)]


# --- pages ------------------------------------------------------------------------------------------------------------


def test_links_lead_to_files_folders_and_headings(tmp_path: Path) -> None:
    page = "# A `page`: one\n## Twice\n## Twice\n```\n[code](no)\n```\n`[a-z](no)`\n"
    good = "[a](b.md) [b](../README.md#a-page-one) [c](#twice-1) [d](https://x.y/z) [e](..)\n"
    bad = "[a](c.md)\n[b](../README.md#two)\n"
    found = tree(tmp_path, {"README.md": page, "docs/a.md": page + good, "docs/b.md": bad})
    assert lines_of(documents.links(found)) == [("docs/b.md", 1), ("docs/b.md", 2)]


def test_the_changelog_has_components_and_sentences(tmp_path: Path) -> None:
    text = "## [Unreleased]\n### Operator\n- A sentence\n  of two lines.\n- No full stop\n### Added\n## 1.0\n"
    assert lines_of(documents.changelog(tree(tmp_path, {"CHANGELOG.md": text}))) == [
        ("CHANGELOG.md", 5),
        ("CHANGELOG.md", 6),
        ("CHANGELOG.md", 7),
    ]


# --- commits ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "faults"),
    [
        ("Refuse a thawed member's commits\n\nWhy.\n", 0),
        ("x" * 72, 1),
        ("X" * 72, 0),
        ("X" * 73, 1),
        ("Fixed a thing", 1),
        ("Fix a thing.", 1),
        ("Fix a thing\nand another", 1),
        ("Fix a thing\n# ------------------------ >8 ---\nand a diff", 0),
        ("# only a comment\n", 1),
        ("fixup! whatever it was.", 0),
    ],
)
def test_the_form_of_a_commit_message(text: str, faults: int) -> None:
    assert len(list(commits.message(text))) == faults


# --- the command ------------------------------------------------------------------------------------------------------


def test_any_fault_fails_and_paths_choose_which_count(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "faults", lambda *_: [Fault("docs/a.md", 2, "word", "x")])
    monkeypatch.setattr(command.gc, "disable", lambda: None)

    assert command.main([]) == 1
    assert capsys.readouterr().err == "docs/a.md:2: word: x\n"
    assert command.main(["docs/"]) == 1
    assert command.main(["core/"]) == 0
