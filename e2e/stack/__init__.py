"""Real servers on loopback for tests, the demonstration and people: never imported by the product."""

from e2e.stack.clickhouse import ClickHouseServer
from e2e.stack.kafka import KafkaBroker, KafkaClusterServers
from e2e.stack.server import Server, StackError
from e2e.stack.spec import StackSpec
from e2e.stack.stack import Stack
from e2e.stack.zookeeper import ZooKeeperServer

__all__ = [
    "ClickHouseServer",
    "KafkaBroker",
    "KafkaClusterServers",
    "Server",
    "Stack",
    "StackError",
    "StackSpec",
    "ZooKeeperServer",
]
