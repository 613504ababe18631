"""`__consumer_offsets` and the ends of logs: the only package of the verifier that talks to Kafka.

It never joins a group and never commits an offset.
"""
