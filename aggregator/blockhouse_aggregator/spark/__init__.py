"""How the work reaches Spark: one application per aggregator, one job per stream and lease.

How an application is started and runs leases is core's (`blockhouse.spark`). `application` is the aggregator's,
`daemon` the parent of its Python workers, `task` what runs in one, `letters` what becomes of messages it cannot decode.
"""
