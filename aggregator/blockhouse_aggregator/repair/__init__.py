"""Loads again what provenance does not find: rows of a lost part, or of a range that a person chooses.

`judging` is pure: which messages of a range are loaded, missing or beyond judgement. `filling` inserts the missing ones
as an owner would, under the table's lock. It must never insert what may still be in flight, nor rows it did not look
for right before.
"""
