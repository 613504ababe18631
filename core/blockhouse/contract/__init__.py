"""What aggregators, verifiers and throttles answer over HTTP and what they may be asked, each key declared once.

One side writes these values, every other side parses them: the operator, the simulator, demo, chaos, benches, tests.
Their versions differ during an upgrade (an aggregator's image is pinned in its resource and may be years older than
the operator), therefore:

- a key of the first contract is required: an answer without it is `NotUnderstood`, never taken for zero or empty;
- a later key has a default, and its docstring states what its absence means;
- an unknown key of an answer is ignored; one of a request is refused, for ignoring it would do less than was asked.

A key, once released, is neither renamed nor given another meaning. `docs/openapi.yaml` is generated from here. Pure: no
client and no server.
"""
