"""The driver: owns streams, carries out the protocol's effects, runs leases, and answers for all of it.

Everything that decides runs on one asyncio loop; clients that block run in threads behind `ports`. Read in this order:
`ports` (what is needed from outside), `owner` (one stream), `conversation` (one lease), `storing` (one block),
`catalog` (tables). `app` puts the whole together.
"""
