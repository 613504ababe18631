"""The page for people reads the contract by hand: each key in its script has to be one of the value that it reads.

JavaScript takes a key that is not there for `undefined`, and the page shows a question mark or nothing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from importlib.resources import files
from typing import Any, get_args

import pytest

from blockhouse.contract.aggregator import NOT_CHECKED, StatusPage
from blockhouse.contract.base import Answer
from blockhouse.contract.diagnosis import InitialMetadata, Ownership
from blockhouse_aggregator.runtime.process.status import PASSING_REASONS

PAGE = files("blockhouse.page").joinpath("page.html").read_text(encoding="utf-8")
PARAMETERS: dict[str, type[Answer]] = {"page": StatusPage, "owned": Ownership, "metadata": InitialMetadata}
"""What the page's functions are given; of a list, its elements."""
FUNCTION = re.compile(r"^function \w+\((?P<parameters>[^)]*)\) {\n(?P<body>.*?)^}", re.M | re.DOTALL)
BINDING = re.compile(
    r"for \(const (?P<name>\w+) of (?P<of>[^)]*)\)"
    r"|(?P<list>[\w.]+|\([\w.]+ \|\| \[\]\)|\[\.\.\.\w+\]\.reverse\(\))\.(?:map|flatMap)\((?P<element>\w+) =>"
)
"""A name for each element of a list: a loop, or a function that is called with it."""
CHAIN = re.compile(r"(?<![\w.\"])([a-z]\w*)((?:\.\w+)+)")


def part(annotation: Any) -> type[Answer] | None:
    """The value of the contract in a field's type, also of a list or a union; None for a plain one."""
    if isinstance(annotation, type) and issubclass(annotation, Answer):
        return annotation
    return next(filter(None, map(part, get_args(annotation))), None)


def walk(model: type[Answer] | None, keys: list[str]) -> Iterator[tuple[str, type[Answer] | None]]:
    """Each key that is read of a value of the contract, and what it leads to. Raises KeyError for one it lacks."""
    for key in keys:
        if model is None or key in ("map", "flatMap", "length"):
            return
        field = {model.key(name): field for name, field in model.model_fields.items()}.get(key)
        if field is None:
            raise KeyError(f"{model.__name__}.{key}")
        model = part(field.annotation)
        yield key, model


def keys_read(page: str) -> list[str]:
    """The keys that the page's script reads, in its order. Raises KeyError as `walk` does."""
    found: list[str] = []
    for function in FUNCTION.finditer(page):
        known = {name: model for name, model in PARAMETERS.items() if name in function["parameters"].split(", ")}
        body = function["body"]
        for bound in BINDING.finditer(body):
            name = bound["name"] or bound["element"]
            root, *keys = (re.search(r"[a-z][\w.]*", bound["of"] or bound["list"]) or [""])[0].split(".")
            steps = [known.get(root), *(model for _, model in walk(known.get(root), keys))]
            if steps[0] is not None and (model := steps[-1]) is not None:
                known[name] = model
        for root, keys_of in CHAIN.findall(body):
            found += [key for key, _ in walk(known.get(root), keys_of.removeprefix(".").split("."))]
    return found


def test_the_page_reads_no_key_that_the_contract_lacks() -> None:
    found = keys_read(PAGE)

    assert len(set(found)) >= 35, "the keys are no longer found"
    assert {"lagSeconds", "inFlight", "sinceMs", "hazards", "text", "replays", "endedMs"} <= set(found)


@pytest.mark.parametrize(
    ("key", "wrong"),
    [
        ("page.replica", "StatusPage.gone"),
        ("stream.lagSeconds", "StreamStatus.gone"),
        ("stream.standing.sinceMs", "Standing.gone"),
        ("table.pending", "LaggingTable.gone"),
        ("block.sinceMs", "BlockInFlight.gone"),
        ("table.held", "TableStatus.gone"),
        ("each.reason", "Hazard.gone"),
        ("each.replays", "Ownership.gone"),
        ("each.metadata", "Ownership.gone"),
        ("metadata.intentMs", "InitialMetadata.gone"),
        ("entry.cursor", "InitialTable.gone"),
        ("entry.inFlight.end", "InitialBlock.gone"),
    ],
)
def test_a_key_that_the_contract_lacks_is_found_wherever_it_is_read(key: str, wrong: str) -> None:
    assert key in PAGE

    with pytest.raises(KeyError, match=wrong):
        keys_read(PAGE.replace(key, f"{key.rpartition('.')[0]}.gone"))


def test_the_page_takes_for_passing_what_the_log_does() -> None:
    passing = re.search(r"const PASSING = (\[.*?\]);", PAGE)
    assert passing is not None
    assert tuple(json.loads(passing[1])) == PASSING_REASONS
    assert f'table.held !== "{NOT_CHECKED}"' in PAGE
