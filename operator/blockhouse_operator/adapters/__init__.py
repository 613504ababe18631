"""What the operator asks of others: one module per client library, each turning its errors into the three of core.

Nothing here decides anything. Every write to Kubernetes passes the fence of the leader first.
"""
