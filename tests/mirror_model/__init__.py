"""The hand-over of one partition of a mirror, walked through every order of events with the mirror's own protocol.

`world` is what exists (source, target log, positions, driver, tasks), `moves` what may happen next, `explore` walks
breadth first through all of it. What the runtime promises beside `protocol/` are switches (`world.RULES`): without any
one of them the exploration must find harm, with all of them none. Time passes in steps of five seconds.

    python -m tests.mirror_model                     every scenario
    python -m tests.mirror_model --without wire      the shortest story of what goes wrong without that rule
"""
