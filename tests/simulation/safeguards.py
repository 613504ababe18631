"""Is the simulation worth anything? Each safeguard is removed from a copy of the product, and some seed must notice.

The patches are those of tests/mutations. Where two safeguards do the same, one behind the other, a patch of the same
name in `patches/` removes both; further ones there are of what no unit test can show.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from tests.mutations.__main__ import SOURCES, copy_of_the_tree

HERE = Path(__file__).parent
FOLDERS = (HERE.parent / "mutations" / "patches", HERE / "patches")
PATIENCE = 7200
OUTSIDE = {
    "acceptance-of-another-stop": "what is decided about another stop lets no stream start",
    "as-declared-": "no table is declared in a simulated world",
    "alter-since-the-intent-ignored": "no table is altered in a simulated world",
    "cancel-defect-blamed-on-spark": "no simulated world has a defect of the driver",
    "column-of-one-replica-recorded": "no table is altered in a simulated world",
    "claim-by-a-torn-read": "an owner has to sleep between two reads while others begin its stream: 1 world in 50,000",
    "columns-of-the-catalog-believed": "no table is altered in a simulated world",
    "dead-letter": "a dead letter is a mark in a simulated log",
    "defect-in-a-proof-swallowed": "no simulated world has a defect of the driver",
    "driver-defect-swallowed": "no simulated world has a defect of the driver",
    "duplicate-but-absent-taken-for-stored": "no row of a block in flight is lost with its quorum in a simulated world:"
    " test_a_block_that_the_server_remembers_and_whose_rows_are_gone_is_not_called_stored",
    "duplicate-of-unknown-rows-acknowledged": "no part is lost with its quorum in a simulated world",
    "ending-joins-again": "a replica has to be fit again as its aggregator ends: 1 world in 7,000",
    "engine-not-asked": "every simulated table is a ReplicatedMergeTree",
    "foreign-block-asked-of-provenance": "no metadata of another aggregator is there",
    "fresh-duplicate-taken-for-stored": "every simulated row names its topic, so that no block is another's:"
    " test_a_fresh_block_that_the_server_knows_already_is_not_called_stored",
    "invariant-skipped": "no simulated world has a defect of the driver",
    "kafka-certificates-": "no simulated client has a certificate",
    "lag-decided-by-the-window": "a simulated worker never decides by the window when its replica cannot answer",
    "last-part-waited-for": "no part is lost with its quorum in a simulated world",
    "late-first-insert": "the proof before the first byte refuses the same inserts",
    "looked-up-column-trusted": "no simulated table has a MATERIALIZED column",
    "member-without-a-password-gone": "no simulated client has a password",
    "merged-rows-believed": "every simulated table is a ReplicatedMergeTree",
    "missing-files-ignored": "no simulated process reads files",
    "proof-without-the-lock": "the claim of the same transaction refuses the same inserts here",
    "recut-forg": "a block with a dead letter has to be cut again, or while a commit is on its way: 1 world in 1,000;"
    " test_a_dead_letter_in_the_range_of_a_block_that_is_cut_again_is_counted_once",
    "repair-": "a simulated person repairs by rules of its own",
    "rows-of-the-next-table-believed": "a table has to be replaced within one read: 1 world in 50,000",
    "same-trouble-no-alarm": "an alarm that is not raised harms no row",
    "silent-replica-not-shown": "people see it, and nothing in a simulated world reads it",
    "start-waits-in-silence": "people see it, and nothing in a simulated world reads it",
    "streams-taken-without-tasks": "Spark always starts tasks in a simulated world",
    "table-": "one pipeline alone is in a simulated world",
    "tokens-newer-than-the-intent": "no simulated server has tokens",
    "unnamed-rows": "every simulated row names its topic",
    "window-younger-than-the-intent": "what ZooKeeper holds of blocks is not read node by node in a simulated world",
    "window-of-": "what ZooKeeper holds of blocks is not read node by node in a simulated world",
}
"""Beginnings of the names of patches that no simulated world can miss, and why: unit and property tests miss them."""
LAG = "lag is for people and the operator, and nothing in a simulated world reads it"
ELSEWHERE = {
    "e2e/": "chaos runs are judged there, and simulated worlds by an oracle of their own",
    "mirror/": "the mirror is not simulated",
    "operator/": "the operator is not simulated",
    "core/blockhouse/certificates": "nothing is served by HTTP in a simulated world",
    "core/blockhouse/cli/": "commands are given by people",
    "core/blockhouse/config/files": "a simulated process is given its settings",
    "core/blockhouse/contract/decisive": "the operator is not simulated",
    "core/blockhouse/exposition": "nothing is served by HTTP in a simulated world",
    "core/blockhouse/fleet/": "fleets are not simulated",
    "core/blockhouse/gate/server": "the gate's sockets are simulated",
    "core/blockhouse/kafka_errors": "no simulated client has a password",
    "core/blockhouse/kafka_login": "no simulated client has a password",
    "core/blockhouse/load/": "the mirror is not simulated",
    "core/blockhouse/producer/": "simulated logs are filled without a producer",
    "core/blockhouse/schema/parse": "no table is declared in a simulated world",
    "core/blockhouse/serving": "nothing is served by HTTP in a simulated world",
    "core/blockhouse/throttle/": "fleets are not simulated",
    "core/blockhouse/tokens": "nothing is served by HTTP in a simulated world",
    "aggregator/blockhouse_aggregator/audit/": "the audit watches from outside",
    "aggregator/blockhouse_aggregator/blocks/": "a simulated worker reads, builds and sends by rules of its own",
    "aggregator/blockhouse_aggregator/clickhouse/": "the client of ClickHouse is simulated",
    "aggregator/blockhouse_aggregator/commands/": "commands are given by people",
    "aggregator/blockhouse_aggregator/coordination/claims": "one pipeline alone is in a simulated world",
    "aggregator/blockhouse_aggregator/coordination/locks": "queues of locks are simulated",
    "aggregator/blockhouse_aggregator/dlq/": "a dead letter is a mark in a simulated log",
    "aggregator/blockhouse_aggregator/kafka/dead_letters": "a dead letter is a mark in a simulated log",
    "aggregator/blockhouse_aggregator/kafka/facts": "the clients of Kafka are simulated",
    "aggregator/blockhouse_aggregator/repair/": "a simulated person repairs by rules of its own",
    "aggregator/blockhouse_aggregator/rollout/": "no table is altered in a simulated world",
    "aggregator/blockhouse_aggregator/runtime/process/lag_watch": LAG,
    "aggregator/blockhouse_aggregator/runtime/process/log_history": LAG,
    "aggregator/blockhouse_aggregator/runtime/process/standing": LAG,
    "aggregator/blockhouse_aggregator/runtime/stream/letters_written": "a dead letter is a mark in a simulated log",
    "aggregator/blockhouse_aggregator/spark/daemon": "Spark is not simulated",
    "aggregator/blockhouse_aggregator/verifier/": "the verifier watches from outside",
    "aggregator/blockhouse_aggregator/wire/": "no simulated message has bytes",
}
"""Where code stands that no simulated world runs, or of which it sees nothing, and why."""
RUN_ALL_THE_SAME = (
    "aggregator/blockhouse_aggregator/blocks/asking.py",
    "aggregator/blockhouse_aggregator/clickhouse/provenance.py",
    "aggregator/blockhouse_aggregator/clickhouse/quorum.py",
)
FOUND = frozenset((HERE / "found.txt").read_text().split())
"""All other patches: some world misses what they remove, as `--safeguards NAME` has shown of each."""


@dataclass(frozen=True, slots=True)
class Found:
    """How many seeds it took to notice, the one that did, and what was noticed; `seeds` is None when nothing was."""

    seeds: int | None
    seed: int | None
    text: str
    seconds: float


def patches(words: list[str]) -> dict[str, Path]:
    """By name; those of this package come in the place of others, those left out only when a word asks for them."""
    known = {path.stem: path for folder in FOLDERS for path in sorted(folder.glob("*.patch"))}
    for word in words:
        if not any(word in name for name in known):
            raise ValueError(f"no safeguard is called like {word!r}; there are: {', '.join(sorted(known))}")
    if not words:
        return {name: path for name, path in sorted(known.items()) if not why_left_out(name, path)}
    return {name: path for name, path in sorted(known.items()) if any(word in name for word in words)}


def why_left_out(name: str, path: Path) -> str:
    """Why no simulated world can miss what the patch removes; empty: one can."""
    changed = re.findall(r"^\+\+\+ b/(\S+)", path.read_text(), re.MULTILINE)
    simulated = any(file in RUN_ALL_THE_SAME or not file.startswith(tuple(ELSEWHERE)) for file in changed)
    reasons = OUTSIDE.items() if simulated else ELSEWHERE.items()
    subject = name if simulated else changed[0]
    return next((why for beginning, why in reasons if subject.startswith(beginning)), "")


def removed(path: Path) -> str:
    """What the patch removes, in its own words."""
    lines = (line for line in path.read_text().splitlines() if line.startswith("Removes: "))
    return " ".join(line.removeprefix("Removes: ") for line in lines)


def try_without(path: Path, *, first: int, seeds: int, processes: int) -> Found:
    """Run seeds in a patched copy until one does harm."""
    began = time.monotonic()
    with copy_of_the_tree() as copy:
        environment = {**os.environ, "GIT_CEILING_DIRECTORIES": str(copy.parent)}
        applied = subprocess.run(
            ["git", "apply", str(path)], cwd=copy, env=environment, capture_output=True, text=True, check=False
        )
        if applied.returncode:
            return Found(None, None, f"the patch does not apply any more: {applied.stderr.strip()}", 0.0)
        packages = os.pathsep.join(str(copy / source) for source in SOURCES)
        environment |= {"PYTHONPATH": packages, "PYTHONDONTWRITEBYTECODE": "1", "PYTHONHASHSEED": "0"}
        command = [sys.executable, "-m", "tests.simulation", "--first", str(first), "--seeds", str(seeds)]
        result = subprocess.run(
            [*command, "--failures", "1", "--processes", str(processes)],
            cwd=copy, env=environment, capture_output=True, text=True, timeout=PATIENCE, check=False,
        )  # fmt: skip
    harm = re.search(r"^seed (\d+): (.*)$", result.stdout, re.MULTILINE)
    done = re.search(r"simulation: (\d+) seeds from", result.stdout)
    if harm is None or done is None:
        text = "no harm" if done is not None else (result.stdout + result.stderr)[-1500:]
        return Found(None, None, text, time.monotonic() - began)
    return Found(int(done[1]), int(harm[1]), harm[2], time.monotonic() - began)


def run_without(words: list[str], *, first: int, seeds: int, processes: int) -> int:
    """Every safeguard in turn; exit code 1 when some is not missed within `seeds` seeds."""
    try:
        chosen = patches(words)
    except ValueError as error:
        sys.stdout.write(f"safeguards: {error}\n")
        return 2
    sys.stdout.write(f"safeguards: SEED={first}, up to {seeds} seeds each\n")
    missed = []
    for name, path in chosen.items():
        found = try_without(path, first=first, seeds=seeds, processes=processes)
        if found.seeds is None:
            missed.append(name)
        mark = "MISS" if found.seeds is None else f"{found.seeds:4}"
        where = "" if found.seed is None else f"seed {found.seed}, "
        text = f'without "{removed(path)}": {found.text[:240]}'
        sys.stdout.write(f"{mark} {name} ({where}{found.seconds:.0f} s): {text}\n")
        sys.stdout.flush()
    for name, why in {**OUTSIDE, **ELSEWHERE}.items() if not words else ():
        sys.stdout.write(f"left out: {name}: {why}\n")
    found_all = f"{len(chosen) - len(missed)} of {len(chosen)} found within {seeds} seeds"
    sys.stdout.write(f"safeguards: {found_all}{', not: ' if missed else ''}{', '.join(missed)}\n")
    return 1 if missed else 0
