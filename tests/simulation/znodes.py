"""What an ensemble stores, as the product's stores ask for it: in place of `coordination.znodes.Znodes`."""

from __future__ import annotations

from collections.abc import Callable

from blockhouse.errors import Retryable
from blockhouse_aggregator.coordination.znodes import Check, Create, Delete, VersionConflict, Write, Znode

Operation = Create | Write | Delete | Check


class SimZnodes:
    """`nodes` are content and version by path. `locked` answers whether the node of a lock is there, and `loses`
    whether the answer to a transaction is lost this time."""

    def __init__(self, locked: Callable[[str], bool], loses: Callable[[], bool]) -> None:
        self.nodes: dict[str, tuple[bytes, int]] = {}
        self._locked = locked
        self._loses = loses

    def get(self, path: str) -> Znode | None:
        found = self.nodes.get(path)
        return None if found is None else Znode(found[0], found[1], 0, 0)

    def create(self, path: str, data: bytes) -> bool:
        if path in self.nodes:
            return False
        self.nodes[path] = (data, 0)
        return True

    def write(self, path: str, data: bytes, version: int) -> None:
        self._require(Write(path, data, version))
        self._carry_out(Write(path, data, version))

    def delete(self, path: str, version: int = -1) -> bool:
        if path not in self.nodes:
            return False
        self._require(Delete(path, version))
        del self.nodes[path]
        return True

    def together(self, *operations: Operation) -> None:
        for operation in operations:
            self._require(operation)
        for operation in operations:
            self._carry_out(operation)
        if self._loses():
            raise Retryable("zookeeper: the answer is lost", after=0.5)

    def _require(self, operation: Operation) -> None:
        path = operation.path
        if isinstance(operation, Create):
            holds = path not in self.nodes
        elif path.startswith("/locks/"):
            holds = self._locked(path)
        else:
            found = self.nodes.get(path)
            holds = found is not None and operation.version in (-1, found[1])
        if not holds:
            raise VersionConflict(f"zookeeper {path}: changed by another process", after=0.0)

    def _carry_out(self, operation: Operation) -> None:
        match operation:
            case Create(path, data):
                self.nodes[path] = (data, 0)
            case Write(path, data, _):
                self.nodes[path] = (data, self.nodes[path][1] + 1)
            case Delete(path, _):
                del self.nodes[path]
            case Check():
                pass
