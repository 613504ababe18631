"""Names become one znode each, whatever characters they have."""

from __future__ import annotations

from blockhouse.config.endpoints import ZooKeeper
from blockhouse_aggregator.coordination.session import Session


def test_a_name_with_slashes_stays_one_node() -> None:
    session = Session(ZooKeeper(servers="127.0.0.1:1", root="/bh/p"))
    assert session.path("locks", "01", "db.a/b") == "/bh/p/locks/01/db.a%2Fb"
