"""What time a shifted process reads, how shifts add up, and that only the dead are swept away."""

from __future__ import annotations

import os
from pathlib import Path

from e2e.chaos.clock import WallClock, library, sweep


def time_read(clock: WallClock) -> float:
    return float(Path(clock.variables["FAKETIME_TIMESTAMP_FILE"]).read_text())


def test_a_clock_is_right_but_for_the_time_it_is_shifted(tmp_path: Path) -> None:
    clock = WallClock(tmp_path / "clocks" / "kafka-a", Path("/lib.so"))
    assert time_read(clock) == clock.offset == 0
    with clock.shifted(-300):
        assert time_read(clock) == clock.offset == -300
        with clock.shifted(450.5):
            assert time_read(clock) == 150.5
        assert time_read(clock) == -300
    assert time_read(clock) == 0


def test_a_shift_ends_with_whatever_ends_it(tmp_path: Path) -> None:
    clock = WallClock(tmp_path / "kafka-a", Path("/lib.so"))
    try:
        with clock.shifted(60):
            raise OSError
    except OSError:
        assert time_read(clock) == 0


def test_the_process_reads_its_own_file_again_every_second_and_keeps_its_monotonic_clock(tmp_path: Path) -> None:
    variables = WallClock(tmp_path / "kafka-a", Path("/lib.so")).variables
    assert variables["LD_PRELOAD"] == "/lib.so"
    assert (variables["FAKETIME_CACHE_DURATION"], variables["FAKETIME_DONT_FAKE_MONOTONIC"]) == ("1", "1")
    assert variables["FAKETIME_FORCE_MONOTONIC_FIX"] == "0"
    other = WallClock(tmp_path / "kafka-b", Path("/lib.so")).variables
    assert variables["FAKETIME_TIMESTAMP_FILE"] != other["FAKETIME_TIMESTAMP_FILE"]


def test_a_file_begins_with_its_sign_as_libfaketime_demands_of_an_offset(tmp_path: Path) -> None:
    with WallClock(tmp_path / "kafka-a", Path("/lib.so")).shifted(300):
        assert (tmp_path / "kafka-a").read_text() == "+300.000\n"


def test_a_machine_without_the_library_reports_it(tmp_path: Path) -> None:
    assert library(tmp_path) is None
    installed = tmp_path / "x86_64-linux-gnu" / "faketime" / "libfaketimeMT.so.1"
    installed.parent.mkdir(parents=True)
    installed.touch()
    assert library(tmp_path) == installed


def test_only_what_dead_processes_have_left_is_swept_away(tmp_path: Path) -> None:
    dead = 2**22 + 1  # above the kernel's largest pid
    names = [
        f"faketime_shm_{dead}",
        f"sem.faketime_sem_{dead}",
        f"faketime_shm_{os.getpid()}",
        "faketime_shm_",
        "sem.other",
    ]
    for name in names:
        (tmp_path / name).touch()
    sweep(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(names[2:])
