"""How the work reaches Spark: one application per aggregator, one job per stream and lease.

`session` makes the application, `daemon` is the parent of its Python workers, `task` what runs in one. Only these three
modules know Spark.
"""
