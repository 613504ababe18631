"""Tools for the owner of a Kafka fleet: read a cluster, plan with `blockhouse.placement`, execute and verify.

Placement decides, this package only carries facts in and decisions out.
"""
