"""A change of tables without the operator: a shard's aggregators are asked for what the operator asks them."""
