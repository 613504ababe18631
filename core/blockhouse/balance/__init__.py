"""How many tasks a mirror needs, which partitions each has, and when that changes. Arithmetic alone.

It must never know a client, a clock or chance: the same input gives the same answer, and time comes with it.
"""
