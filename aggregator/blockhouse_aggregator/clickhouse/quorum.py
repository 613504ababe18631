"""ClickHouse's ZooKeeper nodes: may an "ok" be believed, and is a block certainly still in the deduplication window?

Read-only. It must never be the reason to insert something twice: every doubt is answered "no".

Layout, seen on 18.16 and on 26.9, which has the parallel node and the second directory of hashes as well:
  <table>/quorum/status         the part that waits for its quorum; gone once enough replicas have it
  <table>/quorum/parallel/<p>   the same, one per part (`insert_quorum_parallel`)
  <table>/quorum/failed_parts   a child per part whose writer was lost before any other replica had fetched it: its rows
                                are gone, and its hash leaves its directory in the same transaction
  <table>/blocks/<hash>         one per deduplicated part, named <partition>_<hash>, trimmed by a cleaner
  <table>/deduplication_hashes  the same since 26.2, where `blocks` may stay empty
  <table>/async_blocks/<hash>   of asynchronous inserts, which are not ours; trimmed by a window of their own
  <table>/columns               the shard's columns, written by ALTER before any replica applies it
  <table>/replicas/<r>/columns  what replica r has applied
"""

from __future__ import annotations

import re
from array import array
from bisect import bisect_left
from dataclasses import dataclass

from kazoo.client import KazooClient

from blockhouse_aggregator.clickhouse.shard_columns import Lacking, lacking
from blockhouse_aggregator.coordination.znodes import Znode, Znodes

SAFETY = 2
"""Only the first half of either window is trusted: parts written meanwhile, the cleaner's schedule, clocks."""
HASH_DIRECTORIES = ("blocks", "deduplication_hashes")
"""Where the hashes of our inserts are; each is trimmed to the window by itself."""
UNKNOWN = 1 << 62
"""More entries than any window holds: nothing is certain."""
_OTHER_NODES = frozenset({"async_blocks", "block_numbers", "nonincrement_block_numbers"})
_OF_DEDUPLICATION = re.compile("block|dedup|hash")
_BATCH = 1000
_VANISHED = 1 << 62
"""The time of an entry whose age cannot be asked any more: later than any."""


@dataclass(frozen=True, slots=True)
class QuorumSnapshot:
    """`pending`: some part of the table waits for its quorum. `failed_parts_version` differs whenever one failed."""

    pending: bool
    failed_parts_version: int


@dataclass(frozen=True, slots=True)
class _Ages:
    """When each child of a node was created (Unix milliseconds, ascending), and the node itself just before."""

    of: Znode
    made_ms: array[int]


class QuorumProbe:
    """Reads the table's nodes through a connected client, of the ensemble that this shard's ClickHouse uses.

    Thread-safe. `chroot` is the `<root>` of ClickHouse's own `<zookeeper>` configuration, if it has one.
    Raises Retryable while ZooKeeper is unavailable.
    """

    def __init__(self, zk: KazooClient, *, chroot: str = "", timeout: float = 10.0) -> None:
        self._znodes = Znodes(zk, timeout=timeout)
        self._chroot = chroot.rstrip("/")
        self._known: dict[str, _Ages] = {}

    def snapshot(self, zookeeper_path: str) -> QuorumSnapshot:
        """Failed parts are read last: a part that fails in between shows as a new version, never as "all clear"."""
        quorum = f"{self._chroot}{zookeeper_path}/quorum"
        self._znodes.sync(quorum)  # a follower that lags would not know of a part that waits
        parallel = self._znodes.children(f"{quorum}/parallel")
        status = self._znodes.get(f"{quorum}/status")
        failed = self._znodes.get(f"{quorum}/failed_parts")
        return QuorumSnapshot(
            pending=status is not None or bool(parallel),
            failed_parts_version=failed.children_zxid if failed else 0,
        )

    def failed_parts(self, zookeeper_path: str) -> tuple[str, ...]:
        """Names of all parts that ever failed: no clock decides which of them may be a block's. They are few.

        A replica may show the rows of one for seconds: started before its former session was over, it is neither
        read-only nor active (measured on 18.16), and removes what has failed only when it becomes active.
        """
        failed = f"{self._chroot}{zookeeper_path}/quorum/failed_parts"
        self._znodes.sync(failed)
        return tuple(self._znodes.children(failed))

    def blocks_since(self, zookeeper_path: str, since_ms: int, *, enough: int = 0, older_than_ms: int = UNKNOWN) -> int:
        """Deduplication entries made at or after `since_ms` (Unix time of the ensemble, milliseconds), or more: more is
        the safe side. Only a count above `enough` is exact.

        Each entry has to be asked for its age, and there may be tens of thousands: with the table's lock held that is
        long enough for owners to stop waiting, one by one. So they are asked only if all together are too many, and
        what was read before and the number of changes since are too.

        An entry that vanishes while we count is counted. So is one of a part that failed since: it is gone now, but the
        cleaner may have pushed another out to make room for it. Of several directories the fullest counts: a hash is
        in one of them, and each is trimmed by itself. UNKNOWN for a table without any, with one of a version that this
        code has never seen, or with one that was itself made at `older_than_ms` or later: hashes from before are gone.
        """
        table = f"{self._chroot}{zookeeper_path}"
        self._znodes.sync(table)
        failed = self._made_since(f"{table}/quorum/failed_parts", since_ms)
        names = self._znodes.children(table)
        known = {*HASH_DIRECTORIES, *_OTHER_NODES}
        if any(_OF_DEDUPLICATION.search(name) and name not in known for name in names):
            return UNKNOWN
        paths = [f"{table}/{name}" for name in HASH_DIRECTORIES if name in names]
        nodes = self._znodes.get_many(paths)
        if any(node is not None and node.created_ms >= older_than_ms for node in nodes):
            return UNKNOWN
        counts = [
            self._entries_since(path, node, since_ms, enough - failed)
            for path, node in zip(paths, nodes, strict=True)
            if node is not None
        ]
        return max(counts) + failed if counts else UNKNOWN

    def _entries_since(self, directory: str, node: Znode, since_ms: int, enough: int) -> int:
        """Of one directory, whose node was read just before. Only a count above `enough` is exact."""
        if node.children <= enough:
            return node.children
        known = self._known.get(directory)
        if known is not None and known.of.created_ms == node.created_ms:
            changes = node.children_version - known.of.children_version
            bound = _since(known.made_ms, since_ms) + changes
            if bound <= enough:
                return bound
        # What changes while we read is counted again by the next call: the node was read before.
        made_ms = self._made(directory)
        self._known[directory] = _Ages(node, made_ms)
        return _since(made_ms, since_ms)

    def _made_since(self, parent: str, since_ms: int) -> int:
        return _since(self._made(parent), since_ms)

    def _made(self, parent: str) -> array[int]:
        """When each child was created (Unix milliseconds), ascending."""
        names = self._znodes.children(parent)
        made = array("q")
        for at in range(0, len(names), _BATCH):
            nodes = self._znodes.get_many([f"{parent}/{name}" for name in names[at : at + _BATCH]])
            made.extend(_VANISHED if node is None else node.created_ms for node in nodes)
        return array("q", sorted(made))

    def altered_since(self, zookeeper_path: str, replica_name: str, since_ms: int) -> bool:
        """Whether the table's columns were altered at or after `since_ms` (Unix time of the ensemble, milliseconds), or
        an older ALTER has not reached the replica yet. True also when the nodes cannot be found: nothing is known then.
        A node that was never written since its creation is no ALTER.
        """
        table = f"{self._chroot}{zookeeper_path}"
        self._znodes.sync(table)
        paths = [f"{table}/columns", f"{table}/replicas/{replica_name}/columns"]
        shard, applied = self._znodes.get_many(paths)
        if shard is None or applied is None:
            return True
        return (shard.version > 0 and shard.modified_ms >= since_ms) or shard.data != applied.data

    def lacking(self, zookeeper_path: str) -> tuple[Lacking, ...]:
        """See `shard_columns.lacking`."""
        return lacking(self._znodes, f"{self._chroot}{zookeeper_path}")


def _since(made_ms: array[int], since_ms: int) -> int:
    return len(made_ms) - bisect_left(made_ms, since_ms)


def acknowledgeable(before: QuorumSnapshot, after: QuorumSnapshot) -> bool:
    """Whether an "ok" that came after a retry or a takeover acknowledges the block.

    `before` is taken before the insert, `after` after its "ok". While `after.pending`, ask again later with the same
    `before`: an identical block may be waiting for its quorum, and its copy gets "ok" at once. When the failed parts
    changed, the rows may be gone together with their hash: resend.
    """
    return not after.pending and before.failed_parts_version == after.failed_parts_version


def few_enough(window: int) -> int:
    """How many entries may be added after an intent, that its block is certainly still in a window of so many."""
    return window // SAFETY


def window_certain(
    intent_ms: int, now_ms: int, blocks_since: int, window: int, window_seconds: int, clock_skew: float
) -> bool:
    """Whether a block, if it was ever inserted since its intent, is certainly still in the deduplication window.

    `intent_ms` and `now_ms` are Unix milliseconds of our clock, `clock_skew` seconds by which clocks here and in
    ZooKeeper may differ, `blocks_since` is counted from `intent_ms - clock_skew`. The cleaner keeps the newest
    `window` entries, so with fewer entries since the intent none of them was trimmed.
    Example: window 100, 604,800 s: certain up to 50 entries and half a week.
    """
    age = (now_ms - intent_ms) / 1000
    if age < -clock_skew:
        return False  # an intent from the future: a clock is wrong by more than was promised
    return window > 0 and blocks_since <= few_enough(window) and (age + clock_skew) * SAFETY <= window_seconds
