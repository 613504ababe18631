"""Reassignments on real brokers by the operator's own reconciles, with files in place of a Kubernetes; it is killed."""
