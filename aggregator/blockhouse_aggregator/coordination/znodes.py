"""ZooKeeper reads and writes as all callers here need them: typed, bounded in time, failing in our words.

kazoo's plain calls wait indefinitely while the ensemble is unavailable; these end after `timeout` seconds. It must
never create a client of its own (that is `session.py`) and never retry a write whose fate is unknown: callers know what
is safe.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from kazoo import exceptions as kazoo
from kazoo.client import KazooClient
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.security import OPEN_ACL_UNSAFE

from blockhouse.errors import BlockhouseError, Permanent, Retryable


@dataclass(frozen=True, slots=True)
class Znode:
    """A node: `version` counts writes of its content, `children_version` creations and deletions of children, and
    `children_zxid` changes with each of them; `children` is how many there are.

    `created_ms` and `modified_ms` are Unix milliseconds of the ensemble's clock.
    """

    data: bytes
    version: int
    created_ms: int
    children_zxid: int
    modified_ms: int = 0
    children: int = 0
    children_version: int = 0
    created_zxid: int = 0
    """Of the transaction that created it: a node that is re-created has another one."""


@dataclass(frozen=True, slots=True)
class Create:
    """Part of a transaction: make a node that must not exist."""

    path: str
    data: bytes


@dataclass(frozen=True, slots=True)
class Write:
    """Part of a transaction: write a node that must have this version."""

    path: str
    data: bytes
    version: int


@dataclass(frozen=True, slots=True)
class Delete:
    """Part of a transaction: remove a node that must have this version; -1 is any."""

    path: str
    version: int


@dataclass(frozen=True, slots=True)
class Check:
    """Part of a transaction: the node must have this version."""

    path: str
    version: int


class VersionConflict(Retryable):
    """Another process wrote first: read again and decide again."""


class Znodes:
    """A thin layer over one connected KazooClient. Thread-safe, as kazoo is. All paths are absolute.

    Raises Retryable when the ensemble is unavailable or slow (a write's fate is unknown then), Permanent when it
    refuses.
    """

    def __init__(self, client: KazooClient, *, timeout: float = 10.0) -> None:
        self._client = client
        self._timeout = timeout

    def sync(self, path: str) -> None:
        """Make the server we are connected to catch up with the leader: reads that follow miss no finished write."""
        self._result(self._client.sync_async(path), path)

    def get(self, path: str) -> Znode | None:
        """The node, or None."""
        return self.get_many([path])[0]

    def get_many(self, paths: Sequence[str]) -> list[Znode | None]:
        """As `get` for each path, all asked at once."""
        requests = [(path, self._client.get_async(path)) for path in paths]
        return [self._result(request, path, absent=kazoo.NoNodeError, of=_znode) for path, request in requests]

    def children(self, path: str) -> list[str]:
        """Names of the children, sorted; none for a node that does not exist."""
        return self.children_many([path])[0]

    def children_many(self, paths: Sequence[str]) -> list[list[str]]:
        """As `children` for each path, all asked at once."""
        requests = [(path, self._client.get_children_async(path)) for path in paths]
        return [self._result(request, path, absent=kazoo.NoNodeError, of=sorted) or [] for path, request in requests]

    def ensure(self, path: str, *, of_all: bool = False) -> None:
        """Make the node and its parents unless they exist; `of_all`: so that every login may use it."""
        acl = OPEN_ACL_UNSAFE if of_all else None
        self._result(self._client.ensure_path_async(path, acl), path)

    def create(self, path: str, data: bytes, *, of_all: bool = False) -> bool:
        """Create the node; False when it exists. Parents are created as needed. `of_all` as in `ensure`."""
        made = self._client.create_async(path, data, OPEN_ACL_UNSAFE if of_all else None, makepath=True)
        return self._result(made, path, absent=kazoo.NodeExistsError, of=lambda _: True) or False

    def write(self, path: str, data: bytes, version: int) -> None:
        """Compare and set. Raises VersionConflict when the node is gone or has another version; -1 is any version."""
        self._result(self._client.set_async(path, data, version), path)

    def delete(self, path: str, version: int = -1) -> bool:
        """Delete the node; False when it is gone already. Raises VersionConflict when it has another version."""
        gone = self._client.delete_async(path, version)
        return self._result(gone, path, absent=kazoo.NoNodeError, of=lambda _: True) or False

    def together(self, *operations: Create | Write | Delete | Check) -> None:
        """All of the operations or none. Raises VersionConflict when one of them found a change."""
        transaction = self._client.transaction()
        for operation in operations:
            match operation:
                case Create(path, data):
                    transaction.create(path, data)
                case Write(path, data, version):
                    transaction.set_data(path, data, version=version)
                case Delete(path, version):
                    transaction.delete(path, version=version)
                case Check(path, version):
                    transaction.check(path, version)
        with translated(", ".join(operation.path for operation in operations)):
            results = transaction.commit_async().get(timeout=self._timeout)
            failed = [r for r in results if isinstance(r, Exception) and not isinstance(r, _COMPANIONS)]
            if failed:
                raise failed[0]

    def _result(self, request: Any, path: str, *, absent: Any = (), of: Callable[[Any], Any] | None = None) -> Any:
        with translated(path):
            try:
                answer = request.get(timeout=self._timeout)
            except absent:
                return None
            return of(answer) if of else answer


_COMPANIONS = (kazoo.RolledBackError, kazoo.RuntimeInconsistency)
"""What the innocent operations of a failed transaction report."""


def _znode(answer: tuple[bytes, Any]) -> Znode:
    data, stat = answer
    return Znode(data, stat.version, stat.ctime, stat.pzxid, stat.mtime, stat.numChildren, stat.cversion, stat.czxid)


@contextmanager
def translated(what: str) -> Iterator[None]:
    """Turn kazoo's errors into ours. `what` is the path or server the work was about."""
    try:
        yield
    except BlockhouseError:
        raise
    except (kazoo.BadVersionError, kazoo.NodeExistsError, kazoo.NoNodeError, kazoo.NotEmptyError) as error:
        raise VersionConflict(
            f"zookeeper {what}: changed by another process ({type(error).__name__})", after=0.0
        ) from error
    except (kazoo.NoAuthError, kazoo.AuthFailedError, kazoo.InvalidACLError) as error:
        raise Permanent(
            f"zookeeper {what}: not allowed ({type(error).__name__}): check zookeeper.username and its password",
            reason="ZooKeeperAccessDenied",
        ) from error
    except (kazoo.KazooException, KazooTimeoutError) as error:
        detail = str(error) or type(error).__name__
        raise Retryable(f"zookeeper {what}: {detail}: the ensemble does not answer", after=0.5) from error
