"""The driver: owns streams, carries out the protocol's effects, runs task leases, and answers for all of it.

Everything that decides runs on one asyncio loop; clients that block run in threads behind `ports`. Read in this order:
`ports` (what is needed of servers), `stream.owner` (one stream), `stream.conversation` (one task lease),
`stream.storing` (one block), `tables.catalog` (tables). `assembly` builds the parts, `app` runs the whole.
"""
