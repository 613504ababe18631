"""Where the partitions of a Kafka fleet live: plans made by arithmetic alone, the same for the same input.

Pure: no client library, clock, thread or chance in here. Reading a cluster and executing a plan is `blockhouse.fleet`.
"""
