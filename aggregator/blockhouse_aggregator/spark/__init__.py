"""How the work reaches Spark: one application per aggregator, one job per stream and lease.

`session` makes the application, `task` is what runs in a Python worker. Only these two modules know Spark.
"""
