"""Load of a Kafka cluster: who writes how much, measured where, how long ago. Values and arithmetic alone.

It must never know a client, a clock or a thread: sources are in `blockhouse.fleet.load`.
"""
