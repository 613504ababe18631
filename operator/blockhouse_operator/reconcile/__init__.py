"""Gather, decide, apply: what runs when a resource is due. Nothing is remembered that a restart would need."""
