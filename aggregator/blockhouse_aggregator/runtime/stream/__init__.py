"""One stream while this aggregator owns it: from taking it over to the last acknowledgement.

Read `owner` first, then `conversation` (one task lease). The way of a block is one direction: `owner` asks `in_flight`,
which asks `storing` (lock, trust, grant), which asks `current_task`, to which the conversation has attached itself; the
answer (`outcomes`) comes back as an event of the protocol. `defects` is what the process remembers of its own mistakes.
"""
