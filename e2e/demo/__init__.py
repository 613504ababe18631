"""The demonstration: rows flow from two Kafka clusters, aggregators die and freeze, and every row arrives once."""
