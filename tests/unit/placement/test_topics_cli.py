"""`blockhouse topics plan` on files: what it writes, and what it reports when the input is wrong."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from blockhouse.cli import main

GIB = 1 << 30


@dataclass(frozen=True)
class Outcome:
    code: int
    out: str
    err: str

    @property
    def words(self) -> str:
        """Everything printed, as one line: tables and long lines are wrapped."""
        return " ".join((self.out + " " + self.err).split())


@dataclass
class Files:
    """The input files of a plan, on disk when the plan is run; four brokers in three racks, broker 4 unused."""

    folder: Path
    run: Callable[..., Outcome]

    def __post_init__(self) -> None:
        self.brokers: list[dict[str, Any]] = [
            {"id": id, "rack": rack, "storage_free": free * GIB}
            for id, rack, free in ((1, "a", 100), (2, "b", 100), (3, "c", 100), (4, "c", 400))
        ]
        self.sets: dict[tuple[str, int], list[int]] = {
            ("clicks", 0): [1, 2],
            ("clicks", 1): [2, 3],
            ("views", 0): [3, 1],
        }
        self.sizes: dict[str, dict[str, int]] = {"clicks": {"0": 10 * GIB, "1": 20 * GIB}, "views": {"0": 30 * GIB}}

    @property
    def out(self) -> Path:
        return self.folder / "plan.json"

    def written(self, name: str = "plan.json") -> dict[tuple[str, int], list[int]]:
        document = json.loads((self.folder / name).read_text())
        assert document["version"] == 1
        return {(item["topic"], item["partition"]): item["replicas"] for item in document["partitions"]}

    def plan(self, command: str, *options: str, map_text: str | None = None) -> Outcome:
        partitions = [{"topic": t, "partition": n, "replicas": ids} for (t, n), ids in self.sets.items()]
        texts = {
            "map": map_text or json.dumps({"version": 1, "partitions": partitions}),
            "cluster": json.dumps(self.brokers),
            "sizes": json.dumps(self.sizes),
        }
        arguments = ["topics", "plan", command, "--out", str(self.out), *options]
        for option, text in texts.items():
            file = self.folder / f"{option}.json"
            file.write_text(text)
            arguments += [f"--{option}", str(file)]
        return self.run(*arguments)


@pytest.fixture
def files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Files:
    def run(*arguments: str) -> Outcome:
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        printed = capsys.readouterr()
        return Outcome(int(ended.value.code or 0), printed.out, printed.err)

    return Files(tmp_path, run)


def test_a_replaced_broker_gives_its_slots_to_the_new_one(files: Files) -> None:
    outcome = files.plan("rebuild", "--brokers", "1,2,4")

    assert outcome.code == 0
    assert files.written() == {("clicks", 0): [1, 2], ("clicks", 1): [2, 4], ("views", 0): [4, 1]}
    assert "broker 3 is replaced: it holds replicas and is not in the list" in outcome.words
    assert "replicas moved: 2, 50.00 GiB to copy" in outcome.words


def test_the_json_report_has_the_plan_the_reasons_and_the_brokers(files: Files) -> None:
    outcome = files.plan("rebuild", "--brokers", "1,2,4", "--placement", "storage", "--json")

    report = json.loads(outcome.out)
    assert [change["reasons"] for change in report["partitions"]] == [
        ["no-op"],
        ["replaced broker"],
        ["replaced broker", "preferred leader"],
    ]
    assert report["brokers"][2]["after"] == {"leaders": 0, "followers": 0, "free": 150 * GIB}
    assert report["replicas_moved"] == 2
    assert report["bytes_moved"] == 50 * GIB
    assert len(report["steps"][0]["partitions"]) == 3


def test_only_what_changes_is_written_when_no_ops_are_skipped(files: Files) -> None:
    files.plan("rebuild", "--brokers", "1,2,4", "--skip-no-ops")

    assert files.written().keys() == {("clicks", 1), ("views", 0)}


def test_a_plan_without_any_change_writes_nothing_when_no_ops_are_skipped(files: Files) -> None:
    outcome = files.plan("rebuild", "--skip-no-ops")

    assert outcome.code == 0
    assert "nothing changes" in outcome.err
    assert not files.out.exists()


def test_a_phased_plan_keeps_the_old_leader_first_in_its_first_file(files: Files) -> None:
    files.plan("rebuild", "--brokers", "1,2,4", "--phased-reassignment")

    assert files.written("plan-1.json")["views", 0] == [3, 4, 1]
    assert files.written("plan-2.json")["views", 0] == [4, 1]


def test_a_chunked_plan_empties_a_broker_at_a_time(files: Files) -> None:
    files.plan("rebuild", "--brokers", "1,4", "--min-rack-ids", "1", "--chunk-step-size", "1")

    assert files.written("plan-1.json") == {("clicks", 0): [1, 4], ("clicks", 1): [1, 3]}
    assert files.written("plan-2.json") == {("clicks", 1): [4, 1], ("views", 0): [4, 1]}


def test_the_rollback_file_holds_the_sets_of_now(files: Files) -> None:
    rollback = files.folder / "rollback.json"

    files.plan("rebuild", "--brokers", "1,2,4", "--rollback", str(rollback))

    assert files.written("rollback.json") == files.sets


def test_leadership_is_evacuated_from_a_broker_in_some_topics_only(files: Files) -> None:
    files.plan("rebuild", "--leader-evac-brokers", "2,3", "--leader-evac-topics", "views")

    assert files.written() == files.sets | {("views", 0): [1, 3]}


def test_scale_gives_the_new_broker_a_share(files: Files) -> None:
    outcome = files.plan("scale", "--brokers", "1,2,3,4")

    assert outcome.code == 0
    assert any(4 in ids for ids in files.written().values())
    assert "brokers to unload: 1,2,3" in outcome.words


# What is wrong with the input, and how it is reported.


def test_a_desired_broker_that_has_died_holds_the_plan_back(files: Files) -> None:
    files.brokers = [broker for broker in files.brokers if broker["id"] != 3]

    outcome = files.plan("rebuild", "--brokers", "1,2,3,4")

    assert outcome.code == 4
    assert "broker 3 is desired, and holds replicas, but is not in the cluster: it has died" in outcome.words
    assert not files.out.exists()


def test_a_dead_broker_that_is_not_desired_is_simply_replaced(files: Files) -> None:
    files.brokers = [broker for broker in files.brokers if broker["id"] != 3]

    outcome = files.plan("rebuild", "--brokers", "1,2,4")

    assert outcome.code == 0
    assert "broker 3 is not in the cluster any more: its replicas are replaced" in outcome.words
    assert not any(3 in ids for ids in files.written().values())


def test_a_broker_without_a_rack_holds_the_plan_back_unless_warnings_are_ignored(files: Files) -> None:
    files.brokers[3]["rack"] = None

    held_back = files.plan("rebuild", "--brokers", "1,2,4")
    assert held_back.code == 4
    assert "broker 4 has no rack" in held_back.words
    assert not files.out.exists()

    written = files.plan("rebuild", "--brokers", "1,2,4", "--ignore-warnings")
    assert written.code == 3
    assert files.written()["views", 0] == [4, 1]


def test_an_unknown_broker_holds_the_plan_back(files: Files) -> None:
    outcome = files.plan("rebuild", "--brokers", "1,2,3,99")

    assert outcome.code == 4
    assert "broker 99 is desired but unknown to the cluster" in outcome.words


def test_all_slots_that_no_broker_may_take_are_listed_with_the_constraint(files: Files) -> None:
    outcome = files.plan("rebuild", "--brokers", "3,4", "--ignore-warnings")

    assert outcome.code == 4
    assert "clicks partition 0: no broker may take replica 1: 1 already hold a replica of it" in outcome.words
    assert "1 are in a rack that already holds one" in outcome.words
    assert "views partition 0: no broker may take replica 1" in outcome.words
    assert not files.out.exists()


def test_brokers_without_the_space_are_reported_to_lack_it(files: Files) -> None:
    files.brokers[3]["storage_free"] = 1 * GIB

    outcome = files.plan("rebuild", "--brokers", "2,4", "--topics", "views", "--placement", "storage")

    assert outcome.code == 4
    assert "1 lack the free space of 32212254720 bytes" in outcome.words


@pytest.mark.parametrize("text", ['{"version": 1, "partitions": []}', '{"partitions": []}'])
def test_an_empty_map_is_refused(files: Files, text: str) -> None:
    outcome = files.plan("rebuild", map_text=text)

    assert outcome.code == 2
    assert "map.json is empty: there is nothing to plan" in outcome.words


def test_a_broker_listed_twice_is_refused(files: Files) -> None:
    outcome = files.plan("rebuild", "--brokers", "1,2,2")

    assert outcome.code == 2
    assert "broker list: 2 comes twice; list each broker once" in outcome.words


def test_a_broker_described_twice_is_refused(files: Files) -> None:
    files.brokers.append(files.brokers[0])

    assert "broker 1 is described twice" in files.plan("rebuild").words


def test_a_set_that_names_a_broker_twice_is_refused(files: Files) -> None:
    files.sets["clicks", 0] = [1, 1]

    outcome = files.plan("rebuild")

    assert outcome.code == 2
    assert "clicks partition 0: the replica set [1, 1] names a broker twice" in outcome.words


def test_a_partition_given_twice_is_refused(files: Files) -> None:
    item = '{"topic": "clicks", "partition": 0, "replicas": [1]}'

    outcome = files.plan("rebuild", map_text=f'{{"partitions": [{item}, {item}]}}')

    assert outcome.code == 2
    assert "clicks partition 0 comes 2 times; give it once" in outcome.words


@pytest.mark.parametrize("command", [("rebuild", "--placement", "storage"), ("rebalance",), ("scale",)])
def test_one_missing_size_is_named_where_storage_matters(files: Files, command: tuple[str, ...]) -> None:
    del files.sizes["clicks"]["1"]

    outcome = files.plan(*command)

    assert outcome.code == 2
    assert "clicks partition 1: its size is unknown" in outcome.words
    assert "partition 0: its size" not in outcome.words
    assert files.plan("rebuild").code == 0


def test_an_unmeasured_broker_is_named_where_storage_matters(files: Files) -> None:
    del files.brokers[1]["storage_free"]

    outcome = files.plan("rebalance")

    assert outcome.code == 2
    assert "broker 2: its free space is unknown" in outcome.words


def test_an_expression_that_matches_no_topic_is_refused(files: Files) -> None:
    outcome = files.plan("rebuild", "--topics", "click", "--topics", "views")

    assert outcome.code == 2
    assert "no topic matches 'click'; the topics are: clicks, views" in outcome.words


def test_an_invalid_expression_is_refused(files: Files) -> None:
    outcome = files.plan("rebuild", "--topics-exclude", "cli(cks")

    assert outcome.code == 2
    assert "'cli(cks' is not a regular expression" in outcome.words


def test_excluding_every_topic_is_refused(files: Files) -> None:
    assert "every topic is excluded" in files.plan("rebuild", "--topics-exclude", ".*").words


def test_a_rebalance_that_would_lose_a_broker_is_held_back(files: Files) -> None:
    outcome = files.plan("rebalance", "--brokers", "1,2,4")

    assert outcome.code == 4
    assert "broker 3 holds replicas but is not in the list: a rebalance only adds brokers" in outcome.words


def test_a_scale_without_a_new_broker_is_held_back(files: Files) -> None:
    outcome = files.plan("scale", "--brokers", "1,2,3")

    assert outcome.code == 4
    assert "scale needs new ones" in outcome.words


def test_two_ways_that_contradict_each_other_are_refused(files: Files) -> None:
    assert files.plan("rebuild", "--force-rebuild", "--sub-affinity").code == 2
    assert files.plan("rebuild", "--phased-reassignment", "--chunk-step-size", "1").code == 2


def test_a_broken_document_is_refused_with_the_place_of_every_fault(files: Files) -> None:
    outcome = files.plan("rebuild", map_text='{"partitions": [{"topic": "t", "partition": -1, "replicas": ["x"]}]}')

    assert outcome.code == 2
    assert "partitions.0.partition: Input should be greater than or equal to 0" in outcome.words
    assert "partitions.0.replicas.0: Input should be a valid integer" in outcome.words


def test_missing_inputs_are_all_named(files: Files) -> None:
    outcome = files.run("topics", "plan", "rebuild")

    assert outcome.code == 2
    assert "--map is missing" in outcome.words
    assert "--cluster is missing" in outcome.words


def test_a_file_that_cannot_be_read_is_named(files: Files) -> None:
    outcome = files.run("topics", "plan", "rebuild", "--map", "/none.json", "--cluster", "/none.json")

    assert outcome.code == 2
    assert "/none.json: cannot be read" in outcome.words
