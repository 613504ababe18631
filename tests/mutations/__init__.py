"""Each safeguard removed by a patch must make a named test fail: what no test would miss is not kept for long.

`patches/*.patch` are unified diffs with a header of `Removes: what`, of `Test: pytest node id` (may be repeated) and,
where a scenario of e2e/scenarios notices it too, on a real API server, of `Scenario: pytest node id`. They are applied
to a copy of the tree, never to the checkout.

A new one: break the code, `git diff > tests/mutations/patches/NAME.patch`, put the header before it, restore the code.

    python -m tests.mutations                 all of them
    python -m tests.mutations lock epoch      those whose name contains a word
    python -m tests.mutations --scenarios     those with a scenario, by their scenarios alone
"""
