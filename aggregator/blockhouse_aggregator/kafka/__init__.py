"""Everything that talks to Kafka. No other package imports confluent_kafka.

`member` is the consumer group (ownership and commits, no data), `fetch` reads data (no group, no commits),
`facts` asks what the brokers know, `dead_letters` writes what could not be loaded.
"""
