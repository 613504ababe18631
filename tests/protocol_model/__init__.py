"""An executable world for the product's own `protocol/` code: one stream, several owners, all that goes wrong.

`world` is what exists (log, consumer group, ClickHouse table by table, owners, granted inserts), `moves` what may
happen next, `carry_out` what a move does, `oracle` what must never be. Two ways to walk through it: `explore` visits
every reachable world of a small setting, `wander` takes a long random walk through a large one and lets it heal.

The rules of the runtime that lie outside `protocol/` are switches (`world.RULES`): without any one of them the
exploration must find harm, with all of them none. Nothing here knows a clock, a thread or a server.

    python -m tests.protocol_model                       every scenario of `scenarios`
    python -m tests.protocol_model --without epoch       the shortest story of what goes wrong without that rule
    python -m tests.protocol_model --seed 7              replay one random history
"""
