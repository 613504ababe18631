"""Habits that `CONTRIBUTING.md` asks for, counted. Reads the tree; never changes a file but its own baseline.

A rule finds faults. What is justified stands with its reason in `reasons.toml`; what is older than the rule stands in
`baseline.tsv`, whose counts may only shrink. Everything else fails `make lint`.
"""
