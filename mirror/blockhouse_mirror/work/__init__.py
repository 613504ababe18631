"""What runs in a task: many partitions, each from a consumer to a producer, under grants of the driver."""
