"""Decoding in a process of its own, for the batches that killed a worker: finds the message that does it.

Costs a second start and a copy of every row: used only when the driver asks for it (`careful` orders).
"""
