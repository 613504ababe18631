"""Rollouts of schema changes on real servers: the operator's own reconciles, with a file in place of a Kubernetes."""
