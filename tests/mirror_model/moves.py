"""What may happen next, each with the world after it. Decisions are those of `blockhouse_mirror.protocol`."""

from __future__ import annotations

from collections.abc import Iterator

from blockhouse_mirror.protocol import position as codec
from blockhouse_mirror.protocol.ownership import GRANT_SECONDS, WIRE_SECONDS, Grant, Ownership
from blockhouse_mirror.protocol.position import Holder
from blockhouse_mirror.protocol.provenance import AFTER
from blockhouse_mirror.protocol.takeover import Start, after_tail, decide
from tests.mirror_model.world import FORMAT, KEY, TICK, Driver, Mode, Setting, Worker, World

Moves = Iterator[tuple[str, World]]
PROOF_TICKS = 5.0
"""What a new driver waits longer, rounded up to whole steps."""


def moves(setting: Setting, world: World) -> Moves:
    for name, worker in world.workers:
        yield from _records(setting, world, name, worker)
        yield from _misfortunes(setting, world, name, worker)
        yield from _conversation(setting, world, name, worker)
    yield from _driver(setting, world)
    yield from _time(setting, world)


# --- a task and the brokers -------------------------------------------------------------------------------------


def _records(setting: Setting, world: World, name: str, worker: Worker) -> Moves:
    def to(**changes: object) -> World:
        return world.with_worker(name, worker._replace(**changes))  # type: ignore[arg-type]

    if worker.mode is Mode.ASSIGNED:
        begin = worker.begin
        tail = len(world.log)
        if "tail" in setting.rules:
            origins = world.origins[worker.tail :]
            begin = after_tail(begin, origins)
            if "no-jump" not in setting.rules:
                begin = max([begin, *(origin.offset + 1 for origin in origins)])
        yield f"{name} reads the tail and begins at {begin}", to(mode=Mode.RUNS, begin=begin, read=begin, tail=tail)
    if worker.mode is Mode.RUNS:
        yield from _reading(setting, world, name, worker)
        if worker.letter >= 0:
            after = to(letter=-1)._replace(letters=world.letters | {worker.letter})
            yield f"the dead letter of {worker.letter} is acknowledged to {name}", after
            yield f"the dead letter of {worker.letter} of {name} arrives", world._replace(letters=after.letters)
        if worker.queue:
            yield (
                f"{name} sends {_offset(worker.queue[0])}",
                to(queue=worker.queue[1:], wire=(*worker.wire, worker.queue[0])),
            )
        if worker.queue and setting.gaps and not worker.failed:
            yield f"{_offset(worker.queue[0])} of {name} expires unsent", to(queue=worker.queue[1:], failed=True)
        if worker.failed:
            yield f"{name} ends because a record was not delivered", to(mode=Mode.DEAD, queue=())
    if worker.wire:
        heard = worker.mode in (Mode.RUNS, Mode.FROZEN) and not worker.failed
        acked = (*worker.acked, len(world.log)) if heard else worker.acked
        after = to(wire=worker.wire[1:], acked=acked)
        yield (
            f"the broker appends {_offset(worker.wire[0])} of {name}",
            after._replace(log=(*world.log, worker.wire[0])),
        )
        if not worker.alive and worker.mode is not Mode.FROZEN:
            yield f"{_offset(worker.wire[0])} of {name} never arrives", to(wire=())


def _reading(setting: Setting, world: World, name: str, worker: Worker) -> Moves:
    done = worker.read == len(setting.text) or worker.letter >= 0
    if done or worker.failed or _ending(world, name, worker):
        return
    if setting.text[worker.read] == "f":
        yield from _refused(setting, world, name, worker)
        return
    header: tuple[bytes, ...] = ()
    if setting.text[worker.read] == "r":
        header = (FORMAT % worker.read + AFTER % worker.progress(setting).after,)
    read = worker._replace(read=worker.read + 1, queue=worker.queue + header)
    yield f"{name} reads offset {worker.read}", world.with_worker(name, read)


def _refused(setting: Setting, world: World, name: str, worker: Worker) -> Moves:
    """A record that the target refuses is sent alone: nothing follows before its letter is acknowledged."""
    if worker.letter < 0 and worker.progress(setting).settled:
        letter = worker.read if "letter-first" in setting.rules else -1
        refused = world.with_worker(name, worker._replace(read=worker.read + 1, letter=letter))
        yield f"offset {worker.read} of {name} is refused", refused


def _misfortunes(setting: Setting, world: World, name: str, worker: Worker) -> Moves:
    def to(**changes: object) -> World:
        return world.with_worker(name, worker._replace(**changes))  # type: ignore[arg-type]

    if worker.alive:
        yield f"{name} crashes", to(mode=Mode.DEAD, queue=(), cut=True)
        if not worker.cut:
            yield f"{name} and its driver are cut from each other", to(cut=True)
    if setting.freeze and worker.mode is Mode.RUNS:
        yield f"{name} is frozen", to(mode=Mode.FROZEN)
    if worker.mode is Mode.FROZEN:
        yield f"{name} is thawed", to(mode=Mode.RUNS)
    if worker.alive and worker.left <= 0:
        yield f"{name} ends: its grant is over", to(mode=Mode.DEAD, queue=(), cut=True)


def _ending(world: World, name: str, worker: Worker) -> bool:
    driver = world.driver
    return driver.holder == name and driver.grants == worker.generation and driver.ending and not worker.cut


# --- a task and its driver --------------------------------------------------------------------------------------


def _conversation(setting: Setting, world: World, name: str, worker: Worker) -> Moves:
    driver = world.driver
    if not worker.alive or worker.cut or driver.holder != name:
        return
    assert driver.ownership().holder(KEY) == Grant(name, worker.generation, driver.ending)
    if worker.left < GRANT_SECONDS and not worker.failed:
        yield f"{name} hears its driver", world.with_worker(name, worker._replace(left=GRANT_SECONDS))
    if worker.mode is not Mode.RUNS or worker.failed:
        return
    progress = worker.progress(setting)
    place = driver.known.at(progress.position, progress.epoch, progress.tail, Holder.GRANTED)
    if place != driver.known:
        yield f"{name} reports {progress.position}", world._replace(driver=driver._replace(known=place))
    ends = progress.settled if "confirm" in setting.rules else not worker.queue
    if driver.ending and ends:
        ownership = driver.ownership()
        assert ownership.confirmed(KEY, worker.generation)
        settled = driver.known.at(progress.position, progress.epoch, progress.tail, Holder.SETTLED)
        after = driver.after(ownership)._replace(known=settled)
        # Not idle but dead: bytes that were not acknowledged may still be on the wire.
        ended = worker._replace(mode=Mode.DEAD, queue=(), cut=True)
        yield f"{name} confirms its end at {progress.position}", world.with_worker(name, ended)._replace(driver=after)


def _driver(setting: Setting, world: World) -> Moves:
    driver = world.driver
    if world.stored != driver.known:
        yield f"the driver writes the position {driver.known.offset}", world._replace(stored=_written(driver))
    if driver.desired == "A":
        yield "the assignment changes: B shall have it", world._replace(driver=driver._replace(desired="B"))
    running = {name for name, worker in world.workers if worker.mode is Mode.IDLE or not worker.cut}
    ownership = driver.ownership()
    desired = {KEY: driver.desired}
    changes = ownership.changes(desired, running, 0.0)
    if changes.revoke:
        ownership.ending(KEY)
        yield f"the driver asks {driver.holder} to end it", world._replace(driver=driver.after(ownership))
    for _, task in changes.grant:
        yield from _grant(setting, world, ownership, task)
    if "once-granted" not in setting.rules and driver.holder and driver.holder != driver.desired:
        yield from _grant(setting, world, driver._replace(holder="", ending=False).ownership(), driver.desired)
    if driver.holder and world.worker(driver.holder).cut:
        lost_at = 0.0
        lost_at -= 0.0 if "wire" in setting.rules else WIRE_SECONDS
        lost_at -= 0.0 if "grant" in setting.rules else GRANT_SECONDS
        ownership.lost(driver.holder, lost_at)
        yield (
            f"the driver loses the session of {driver.holder}",
            world._replace(driver=driver.after(ownership)._replace(desired="B")),
        )
    if setting.replaced and not world.replaced and world.worker("B").mode is Mode.IDLE:
        yield from _replace_driver(setting, world)


def _grant(setting: Setting, world: World, ownership: Ownership, task: str) -> Moves:
    """As the driver does it: where it continues is decided and written, then it is granted."""
    driver, worker = world.driver, world.worker(task)
    if worker.mode is not Mode.IDLE:
        return
    decided = decide(driver.known, world.source_log(setting), world.target_log, skip=False)
    assert isinstance(decided, Start), decided
    known = driver.known.at(decided.offset, decided.epoch, decided.tail, Holder.GRANTED)
    ownership.granted(KEY, task)
    granted = driver._replace(known=known, grants=driver.grants + 1)
    after = granted.after(ownership)
    assigned = Worker(Mode.ASSIGNED, after.grants, decided.offset, decided.tail, decided.offset)
    yield (
        f"the driver grants it to {task} from {decided.offset}",
        world.with_worker(task, assigned)._replace(driver=after, stored=_written(after)),
    )


def _written(driver: Driver) -> codec.Position:
    return codec.decode(driver.known.tail, codec.encode(driver.known))


def _replace_driver(setting: Setting, world: World) -> Moves:
    """Another driver joins the group: it knows what is stored, and nothing of the former one's tasks."""
    stored = world.stored
    ownership = Ownership()
    if stored.holder is Holder.GRANTED and "marker" in setting.rules:
        ownership.wait(KEY, PROOF_TICKS)
    fresh = Driver(stored, grants=0, desired="B").after(ownership)
    without = tuple((name, worker._replace(cut=True, generation=-1)) for name, worker in world.workers if name == "A")
    workers = (*without, ("B", Worker()))
    yield "another driver takes over", world._replace(driver=fresh, workers=workers, replaced=True)


# --- time -------------------------------------------------------------------------------------------------------


def _time(setting: Setting, world: World) -> Moves:
    """Five seconds pass: a task whose grant is over ends in that moment, unless it is frozen; what a dead one had sent
    arrives within that time or never."""
    if any(worker.wire and worker.mode is Mode.DEAD for _, worker in world.workers):
        return
    workers = tuple((name, _older(setting, worker)) for name, worker in world.workers)
    driver = world.driver._replace(waits=max(0.0, world.driver.waits - TICK))
    after = world._replace(workers=workers, driver=driver)
    if after != world:
        yield "5 s pass", after


def _older(setting: Setting, worker: Worker) -> Worker:
    if worker.mode in (Mode.IDLE, Mode.DEAD):
        return worker
    left = max(0.0, worker.left - TICK)
    if worker.alive and left == 0.0 and "self-end" in setting.rules:
        return worker._replace(left=left, mode=Mode.DEAD, queue=(), cut=True)
    return worker._replace(left=left)


def _offset(header: bytes) -> str:
    return header.decode().split(" ")[4]
