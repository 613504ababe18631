"""Faults on purpose: named points in driver and worker at which a test or a chaos run makes something go wrong.

Off unless `faults.enabled` is set; see docs/faults.md. Nothing here may do anything by itself: an injection happens
only because it was armed over the admin API.
"""
