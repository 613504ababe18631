"""The smallest valid configuration, for tests of the driver."""

from blockhouse.config.pipeline import AggregatorConfig
from blockhouse.streams import StreamId

STREAM = StreamId("a", "events", 0)
CONFIG = AggregatorConfig.model_validate(
    {
        "pipeline": "p",
        "shard": "01",
        "replica": "r1",
        "kafka": {"topic": "events", "group": "g", "clusters": [{"name": "a", "bootstrapServers": "127.0.0.1:1"}]},
        "zookeeper": {"servers": "127.0.0.1:1"},
    }
)
