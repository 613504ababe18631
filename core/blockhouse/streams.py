"""Names of the things exactly-once is about: one stream is one partition of one topic of one Kafka cluster."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class StreamId:
    """A stream. Everything the protocol promises, it promises per stream.

    `cluster` is the name the pipeline gives the Kafka cluster (it is part of the provenance of every row),
    not anything the brokers know.
    """

    cluster: str
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.cluster}/{self.topic}/{self.partition}"

    @classmethod
    def parse(cls, text: str) -> StreamId:
        """Inverse of `str`. Raises ValueError naming the text when it is not `cluster/topic/partition`."""
        parts = text.split("/")
        if len(parts) != 3 or not parts[2].isdigit():
            raise ValueError(f"not a stream (cluster/topic/partition): {text!r}")
        return cls(parts[0], parts[1], int(parts[2]))


def incarnation(topic: str, topic_id: str) -> str:
    """What rows hold of their topic (column `_kafka_topic`), e.g. `events-01/Qm9uam91cg`: a topic that is deleted and
    created again has its name and another id. Without an id (brokers before 2.8) it ends with the slash."""
    return f"{topic}/{topic_id}"
