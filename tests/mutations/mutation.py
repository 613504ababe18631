"""A patch file: what it removes, which tests and scenarios must notice, and the diff itself."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parent / "patches"
SCENARIOS = "e2e/scenarios/"


@dataclass(frozen=True, slots=True)
class Mutation:
    """`tests` are pytest node ids, each of which must pass without the patch and fail with it; so are `scenarios`,
    which need a Kubernetes."""

    name: str
    removes: str
    tests: tuple[str, ...]
    path: Path
    scenarios: tuple[str, ...] = ()


def read_all(words: list[str]) -> list[Mutation]:
    """The mutations asked for, by name. Raises ValueError for a patch without header or a word that names none."""
    known = [read(path) for path in sorted(FOLDER.glob("*.patch"))]
    for word in words:
        if not any(word in mutation.name for mutation in known):
            raise ValueError(f"no mutation is called like {word!r}; there are: {', '.join(m.name for m in known)}")
    return [m for m in known if not words or any(word in m.name for word in words)]


def read(path: Path) -> Mutation:
    header = path.read_text().split("\n--- ", 1)[0].splitlines()
    fields = [line.split(": ", 1) for line in header if ": " in line]
    removes = " ".join(value for key, value in fields if key == "Removes")
    tests, scenarios = (tuple(value.strip() for key, value in fields if key == kind) for kind in ("Test", "Scenario"))
    if not removes or not tests:
        raise ValueError(f"{path.name}: a patch states `Removes: ...` and `Test: ...` before its diff")
    if elsewhere := [scenario for scenario in scenarios if not scenario.startswith(SCENARIOS)]:
        raise ValueError(f"{path.name}: {elsewhere[0]} is no test of {SCENARIOS}")
    return Mutation(path.stem, removes, tests, path, scenarios)
