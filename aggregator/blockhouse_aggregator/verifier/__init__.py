"""The runtime verifier: proves from Kafka's own history of commits that no stream lost or doubled anything.

Independent of what it watches: it shares the metadata codec and the configuration with the aggregator, nothing else.
"""
