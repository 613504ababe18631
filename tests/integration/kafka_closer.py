"""Sessions that end while the group still has callbacks for them: `python kafka_closer.py BOOTSTRAP TOPIC GROUP`.

A process of its own, because librdkafka answers them wrongly by standing still with the interpreter's lock held.
Prints the number of each session that has ended, and what was reported to any of them.
"""

from __future__ import annotations

import functools
import sys

from confluent_kafka import KafkaException

from blockhouse.config.endpoints import KafkaCluster
from blockhouse.config.pipeline import Kafka
from blockhouse.kafka_login import Login
from blockhouse_aggregator.kafka.coverage import ask
from blockhouse_aggregator.kafka.session import Session, settings
from e2e.stack.process import wait_until
from tests.integration.kafka_recorder import settings_of

SESSIONS = 20


def main(bootstrap: str, topic: str, group: str) -> None:
    reported: list[str] = []
    for number in range(SESSIONS):
        cluster, kafka = settings_of(bootstrap, topic, f"{group}-{number}")
        session = Session(
            settings(cluster, kafka, "r1"),
            topic,
            Login(cluster),
            on_assign=lambda *_: reported.append("assigned"),
            on_revoke=lambda *_: reported.append("revoked"),
            on_lost=lambda *_: reported.append("lost"),
            on_error=lambda error: reported.append(str(error)),
        )
        # Nothing was polled: the assignment waits in the client, or is on its way to it.
        assert wait_until(functools.partial(_joined, cluster, kafka), timeout=60), f"group {kafka.group} is not stable"
        session.abandon().result(60)
        sys.stdout.write(f"{number} {reported}\n")
        sys.stdout.flush()


def _joined(cluster: KafkaCluster, kafka: Kafka) -> bool:
    try:
        return ask(cluster, kafka).stable
    except KafkaException:  # the coordinator is loading
        return False


if __name__ == "__main__":
    main(*sys.argv[1:])
