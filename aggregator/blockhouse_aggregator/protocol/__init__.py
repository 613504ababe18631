"""The exactly-once protocol of one stream, as pure functions: `docs/protocol.md` is its text.

Read in this order: `state` (what an owner knows), `events` (what can happen and what must be done), `takeover` (from
committed metadata to a state), `sealing` (a scanned range becomes blocks), `step` (the transition function),
`schedule` (what to read next), `invariants` (I1-I7 as checks). No client library, clock, randomness or thread: time is
an argument.
"""
