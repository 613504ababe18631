"""Habits that `CONTRIBUTING.md` asks for, counted. Reads the tree; must never change a file.

A rule finds faults. What is justified stands with its reason in `reasons.toml` or, for a word, in `words.toml`.
Everything else fails `make lint`.
"""
