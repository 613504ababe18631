"""Rollouts of schema changes on real servers: the operator's own turns, with a file in place of a Kubernetes."""
