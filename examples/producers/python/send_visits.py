"""Sends 10 messages of 10 rows of the table visits; arguments: the producer's file, the first visit_id."""

import sys
from datetime import UTC, datetime

from blockhouse.producer import Producer

TABLE, MESSAGES, ROWS = "default.visits", 10, 10


def main(file: str, first: int) -> None:
    with Producer.from_config(file) as producer:
        for start in range(first, first + MESSAGES * ROWS, ROWS):
            at = datetime.now(UTC)
            rows = [{"visit_id": visit, "page": f"/python/{visit}", "at": at} for visit in range(start, start + ROWS)]
            producer.send(TABLE, rows, key=str(start).encode())
        producer.flush()  # raises what the brokers refused
    sys.stdout.write(f"the brokers have {MESSAGES * ROWS} rows of {TABLE}\n")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: python send_visits.py PRODUCER_YAML FIRST_VISIT_ID")
    main(sys.argv[1], int(sys.argv[2]))
