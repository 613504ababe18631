"""How the work of leases reaches Spark: one application per driver, one job with one task per lease.

`session` makes the application, `daemon` is the parent of its Python workers, `archive` makes its JVM start sooner.
What a task does is each system's own.
"""
