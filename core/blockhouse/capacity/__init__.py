"""How large a pipeline has to be for its load: shards, partitions, replicas, processors, memory, disks.

Arithmetic over settings and measured figures alone. It must never know a client, a clock or a server.
"""
