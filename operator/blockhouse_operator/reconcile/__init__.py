"""Gather, decide, apply: what runs when a resource's turn has come. Nothing is remembered that a restart would need."""
