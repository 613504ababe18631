"""A group member in a process of its own, which a test can freeze: `python kafka_zombie.py BOOTSTRAP TOPIC GROUP`.

Prints `ready` when it owns something, then obeys lines on its standard input: `commit OFFSET` commits its first stream
under the epoch it had then and prints the outcome and the reason, `drops` waits for the first drop and prints why.
"""

from __future__ import annotations

import sys

import structlog

from blockhouse_aggregator.protocol.commits import Applied
from tests.integration.kafka_recorder import member, settings_of


def main(bootstrap: str, topic: str, group: str) -> None:
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    cluster, kafka = settings_of(bootstrap, topic, group, session_timeout=6)
    with member(cluster, kafka, "zombie") as (subject, heard):
        heard.wait(lambda: heard.owned != {})
        stream, epoch = min(heard.owned.items())
        _emit("ready")
        for line in sys.stdin:
            match line.split():
                case ["commit", offset]:
                    outcome = subject.commit(stream, epoch, int(offset), "zombie").result(60)
                    reason = "" if isinstance(outcome, Applied) else f" {outcome.reason}"
                    _emit(type(outcome).__name__.lower() + reason)
                case ["drops"]:
                    heard.wait(lambda: heard.drops != [])
                    _emit(heard.drops[0])


def _emit(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
