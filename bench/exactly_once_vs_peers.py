"""The same production, the same harm: what is lost and what is doubled, by us and by what people use instead.

    python bench/exactly_once_vs_peers.py [--only blockhouse,loop,engine] [--kills 3] [--outages 2] [--json FILE]

Two harms, at the worst point of each contestant: it is killed between its insert and its commit (`--kills` times), and
ZooKeeper stops answering for longer than a session lasts, with an insert under way (`--outages` times). A third run has
no harm, as a control. Then the rows of every replica are compared with those produced. Figures, never pass or fail;
docs/bench.md has the table.
"""

from __future__ import annotations

import json
import os
import shutil
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated

import typer
from confluent_kafka import Producer

from bench.dataset import CHUNK, Dataset
from bench.end_to_end import DEFAULT_FOLDER
from bench.peers import PEERS, Peer
from bench.testbed import PARTITIONS, SPEC, Testbed, table_headers
from e2e.stack.process import wait_until
from e2e.stack.server import StackError

SESSION_MS = 6_000
OUTAGE = 12.0
"""Seconds without ZooKeeper: twice a session, and longer than the engine's flush interval of 7.5 s."""
PAUSE = 6.0
"""Seconds of work between two harms."""
CALM, PATIENCE = 30.0, 300.0
"""Seconds without a new row after which nothing more is expected, and to wait for that at most."""


@dataclass(frozen=True, slots=True)
class Result:
    """Rows, on the replica that is worst off. `lost` and `duplicates` may come together: they do not cancel out."""

    peer: str
    harm: str
    produced: int
    lost: int
    duplicates: int


class Production:
    """Sends messages at a steady rate, round-robin to all partitions, until all are acknowledged."""

    def __init__(self, peer: Peer, rate: float) -> None:
        self._messages = peer.messages()
        self._peer = peer
        self._rate = rate
        self._errors: list[str] = []
        self._thread = threading.Thread(target=self._run, name="production")

    def __enter__(self) -> Production:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.join()

    def finish(self) -> None:
        self._thread.join()
        if self._errors:
            raise StackError(f"{len(self._errors)} messages were not taken: {self._errors[0]}")

    def _run(self) -> None:
        producer = Producer({"bootstrap.servers": self._peer.bed.bootstrap, "enable.idempotence": True, "log_level": 0})
        headers = table_headers(self._peer.table)
        began = time.monotonic()
        for number, value in enumerate(self._messages):
            time.sleep(max(0.0, began + number / self._rate - time.monotonic()))
            producer.produce(
                self._peer.topic,
                value,
                partition=number % PARTITIONS,
                headers=headers,
                on_delivery=lambda error, _: self._errors.append(str(error)) if error else None,
            )
            producer.poll(0)
        if left := producer.flush(120):
            self._errors.append(f"{left} without an answer")


def harm_by_kills(peer: Peer, times: int) -> int:
    """How often it was killed: fewer times when everything was loaded before."""
    for done in range(times):
        time.sleep(PAUSE)
        if not peer.kill_after_insert():
            return done
    return times


def harm_by_outages(peer: Peer, times: int) -> int:
    """ZooKeeper hangs, as behind a dead switch: connections stay open and no answer comes."""
    for _ in range(times):
        time.sleep(PAUSE)
        peer.wait_for_insert()
        peer.bed.stack.zookeeper.freeze()
        time.sleep(OUTAGE)
        peer.bed.stack.zookeeper.thaw()
    return times


def no_harm(_peer: Peer, _times: int) -> int:
    """What is lost or doubled in this run is so without anybody's doing."""
    return 0


HARMS = {
    "none": ("nothing", no_harm),
    "kill": ("killed between insert and commit", harm_by_kills),
    "outage": ("ZooKeeper session lost during a flush", harm_by_outages),
}


def measure(bed: Testbed, data: Dataset, name: str, harm: str, times: int, rate: float) -> Result:
    title, kind = PEERS[name]
    text, action = HARMS[harm]
    table = f"{name}_{harm}"
    bed.create_topic(f"topic-{table}")
    with kind(bed, data, table, f"topic-{table}") as peer, Production(peer, rate) as production:
        done = action(peer, times)
        production.finish()
        bed.stack.heal()
        settle(peer, data.rows)
        lost, duplicates = compare(bed, table, data.rows)
    bed.drop_table(table)
    return Result(title, f"{text}, {done} times" if done else text, data.rows, lost, duplicates)


def settle(peer: Peer, produced: int) -> None:
    """Until every replica has as many rows as were produced, or no row has come for a while although it works."""
    last, since, end = [-1], time.monotonic(), time.monotonic() + PATIENCE

    def done() -> bool:
        nonlocal last, since
        rows = peer.bed.rows(peer.table)
        if rows != last or not peer.working():
            last, since = rows, time.monotonic()
        still = time.monotonic() - since
        return still > CALM or (min(rows) >= produced and still > CALM / 3) or time.monotonic() > end

    wait_until(done, timeout=PATIENCE + CALM, interval=1.0)


def compare(bed: Testbed, table: str, produced: int) -> tuple[int, int]:
    """Rows lost and rows too many, of the worst replica; a row is known by its `event_id`."""
    found = [
        server.execute(f"SELECT uniqExact(event_id), count() FROM {table}")[0]
        for server in bed.stack.clickhouse.values()
    ]
    return max(produced - unique for unique, _ in found), max(rows - unique for unique, rows in found)


def table_of(results: Sequence[Result]) -> str:
    lines = ["| what loads | what was done to it | produced | lost | duplicates |", "|---|---|---|---|---|"]
    lines += [f"| {r.peer} | {r.harm} | {r.produced:,} | {r.lost:,} | {r.duplicates:,} |" for r in results]
    return "\n".join(lines)


def main(
    only: Annotated[str, typer.Option(help=f"Some of {','.join(PEERS)}.")] = ",".join(PEERS),
    harms: Annotated[str, typer.Option(help=f"Some of {','.join(HARMS)}.")] = ",".join(HARMS),
    kills: Annotated[int, typer.Option(min=1)] = 3,
    outages: Annotated[int, typer.Option(min=1)] = 2,
    rows: Annotated[int, typer.Option(help=f"A multiple of {CHUNK}.")] = CHUNK,
    rate: Annotated[float, typer.Option(help="Messages a second, ten rows each.")] = 200,
    folder: Annotated[Path, typer.Option(help="Where servers keep their data, and rows are kept.")] = DEFAULT_FOLDER,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write the figures to this file too.")] = None,
) -> None:
    """Loss and duplicates of each contestant under each harm."""
    times = {"none": 1, "kill": kills, "outage": outages}
    for given, known in ((only, list(PEERS)), (harms, list(HARMS))):
        if unknown := set(given.split(",")) - set(known):
            raise typer.BadParameter(f"no {', '.join(sorted(unknown))}: there are {', '.join(known)}")
    data = Dataset(folder.absolute(), rows)
    data.prepare()
    servers = folder.absolute() / f"servers-{os.getpid()}"
    results: list[Result] = []
    try:
        with Testbed(servers, replace(SPEC, clickhouse_zk_timeout_ms=SESSION_MS)) as bed:
            for harm in harms.split(","):
                for name in only.split(","):
                    results.append(measure(bed, data, name, harm, times[harm], rate))
                    print(results[-1], flush=True)
    finally:
        shutil.rmtree(servers, ignore_errors=True)
    print(table_of(results))
    if json_file is not None:
        json_file.write_text(json.dumps([asdict(result) for result in results], indent=1) + "\n")


if __name__ == "__main__":
    typer.run(main)
