"""The record of throttles in a file: durable, of one cluster, and never guessed when it cannot be read."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from blockhouse.errors import Permanent
from blockhouse.fleet.throttle_inputs import FixedRate
from blockhouse.fleet.throttle_store import FileStore, default_path
from blockhouse.throttle.model import NO_RATE, Override, Overrides, Ownership, Role

OURS = Ownership({(3, Role.FOLLOWER): (5, NO_RATE)}, {("t", Role.LEADER): frozenset({"0:1", "-0:2"})})


def test_what_is_remembered_is_there_for_the_next_process(tmp_path: Path) -> None:
    path = tmp_path / "below" / "record.json"
    FileStore(path, "cluster").remember(OURS)
    again = FileStore(path, "cluster")
    assert again.ownership() == OURS
    again.override(None, Override(7, auto_remove=True))
    again.override(3, Override(9, expires_at=12.5))
    found = FileStore(path, "cluster")
    assert found.overrides() == Overrides(Override(7, auto_remove=True), {3: Override(9, expires_at=12.5)})
    assert found.ownership() == OURS, "an override changes nothing that is ours"
    found.forget_override(3)
    found.forget_override(None)
    assert FileStore(path, "cluster").overrides() == Overrides()


def test_a_record_of_another_cluster_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    FileStore(path, "one").remember(OURS)
    with pytest.raises(Permanent, match=r"record of Kafka cluster one, not of other: name another file with --state"):
        FileStore(path, "other").ownership()


@pytest.mark.parametrize("text", ["", "{}", '{"version": 2}', '{"version": 1, "cluster": "c", "rates": 5}'])
def test_a_record_that_cannot_be_read_is_not_taken_for_an_empty_one(tmp_path: Path, text: str) -> None:
    path = tmp_path / "record.json"
    path.write_text(text)
    with pytest.raises(Permanent, match=r"record.json is not a record of throttles .*clear --all --adopt"):
        FileStore(path, "cluster").ownership()
    with pytest.raises(Permanent):
        FileStore(path, "cluster").remember(OURS)
    assert path.read_text() == text


def test_a_record_that_cannot_be_written_is_an_error_before_anything_is_throttled(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(Permanent, match="cannot be written, and nothing is throttled that is not recorded first"):
        FileStore(tmp_path / "file" / "record.json", "cluster").remember(OURS)


def test_a_fixed_rate_gives_way_to_what_is_asked_for_meanwhile(tmp_path: Path) -> None:
    store = FileStore(tmp_path / "record.json", "cluster")
    fixed = FixedRate(store, 100)
    assert fixed.overrides() == Overrides(Override(100))
    store.override(3, Override(5))
    assert fixed.overrides() == Overrides(Override(100), {3: Override(5)})
    store.override(None, Override(50))
    assert fixed.overrides().of(1) == Override(50)


def test_each_cluster_has_a_file_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "/state")
    assert default_path("abc") == Path("/state/blockhouse/throttle-abc.json")


def test_another_command_waits_while_one_is_alone_with_the_record(tmp_path: Path) -> None:
    """Else one writes back what it had read before the other's change, and that is taken for another tool's."""
    path, order = tmp_path / "record.json", []
    mine, other = FileStore(path, "cluster"), FileStore(path, "cluster")
    waiting = threading.Thread(target=lambda: (other.remember(OURS), order.append("other")))
    with mine.exclusive():
        waiting.start()
        mine.override(None, Override(7))
        mine.remember(Ownership())
        order.append("mine")
    waiting.join(10)
    assert order == ["mine", "other"]
    assert mine.ownership() == OURS
    assert mine.overrides() == Overrides(Override(7))
