"""What a commit may contain after the one before it, derived from the invariants of `docs/protocol.md`. Pure.

These rules are written a second time on purpose: the aggregator's own checks share its mistakes.
"""
