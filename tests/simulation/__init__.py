"""The real driver against a simulated world: clock, network, Kafka groups, ClickHouse, ZooKeeper and workers.

`runtime/`, `app.Aggregator`, `protocol/`, `kafka/member.py` and the gate's messages run as they are, on an event loop
whose time is virtual; everything outside their ports is simulated here, from one seed. A run is a pure function of its
seed: `python -m tests.simulation --seed N` plays it again and prints the timeline.
"""
