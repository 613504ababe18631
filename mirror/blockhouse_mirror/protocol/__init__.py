"""What a mirror decides: where a partition continues, what may be moved when, how far its position is. Pure.

It must never know a client, a clock or chance: moments come as numbers, and the same input gives the same answer.
"""
