"""PromQL of the ways in which Kafka's metrics are usually exported. Strings alone; `$window` is filled in later."""

from __future__ import annotations

from blockhouse.fleet.load.settings import Queries

_BROKER = "sum by (pod, instance) "


def _counters(stem: str, suffix: str) -> Queries:
    """Counters such as kafka_server_brokertopicmetrics_bytesin_total; without `topic` they are of the whole broker."""

    def of_broker(name: str) -> str:
        return f'{_BROKER}(rate({stem}_{name}{suffix}{{topic=""}}[$window]))'

    def of_topic(name: str) -> str:
        return f'sum by (topic) (rate({stem}_{name}{suffix}{{topic!=""}}[$window]))'

    return Queries(
        bytes_in=of_broker("bytesin"),
        bytes_out=of_broker("bytesout"),
        replication_in=of_broker("replicationbytesin"),
        replication_out=of_broker("replicationbytesout"),
        moved_in=of_broker("reassignmentbytesin"),
        moved_out=of_broker("reassignmentbytesout"),
        topic_bytes=of_topic("bytesin"),
        topic_messages=of_topic("messagesin"),
        measured_at=f'timestamp({stem}_bytesin{suffix}{{topic=""}})',
    )


def _one_minute_rates() -> Queries:
    """Kafka's own one-minute rates as gauges, one series for all meters, distinguished by `name`."""
    series = "kafka_server_BrokerTopicMetrics_OneMinuteRate"

    def of_broker(name: str) -> str:
        return f'{_BROKER}({series}{{name="{name}PerSec",topic=""}})'

    def of_topic(name: str) -> str:
        return f'sum by (topic) ({series}{{name="{name}PerSec",topic!=""}})'

    return Queries(
        bytes_in=of_broker("BytesIn"),
        bytes_out=of_broker("BytesOut"),
        replication_in=of_broker("ReplicationBytesIn"),
        replication_out=of_broker("ReplicationBytesOut"),
        moved_in=of_broker("ReassignmentBytesIn"),
        moved_out=of_broker("ReassignmentBytesOut"),
        topic_bytes=of_topic("BytesIn"),
        topic_messages=of_topic("MessagesIn"),
        measured_at=f'timestamp({series}{{name="BytesInPerSec",topic=""}})',
    )


_BY_PARTITION = "by (topic, partition)"
_RECORDS = f"max {_BY_PARTITION} (rate(kafka_log_log_logendoffset[$window]))"
_LOG_RECORDS = (
    f"(max {_BY_PARTITION} (kafka_log_log_logendoffset) - max {_BY_PARTITION} (kafka_log_log_logstartoffset) > 0)"
)

PRESETS: dict[str, Queries] = {
    "strimzi": _counters("kafka_server_brokertopicmetrics", "_total").model_copy(
        update={
            "partition_messages": _RECORDS,
            "partition_bytes": f"{_RECORDS} * max {_BY_PARTITION} (kafka_log_log_size) / {_LOG_RECORDS}",
        }
    ),
    "cruise-control": _one_minute_rates(),
    "grafana-cloud": _counters("kafka_server_brokertopicmetrics", "persec"),
}


def complete(preset: str, own: Queries) -> dict[str, str]:
    """The preset's queries with one's own in their place; an empty one is left out."""
    chosen = PRESETS[preset].model_dump() | own.model_dump(exclude_none=True)
    return {name: query for name, query in chosen.items() if query}
