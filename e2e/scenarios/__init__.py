"""The operator on a real Kubernetes API, from outside: `make e2e` (fake nodes) and `make e2e-node` (a real one)."""
