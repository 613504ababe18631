"""A Kubernetes, aggregators, Kafka and ZooKeeper in memory, to test and to measure the operator with."""
