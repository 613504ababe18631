"""Where load is read: a cluster's own answers, Prometheus, Cruise Control's topics or a file; `blockhouse load`.

A provider that is silent or partial is reported by name and never stops what decides with its figures.
"""
