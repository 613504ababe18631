"""The work itself, without Spark and without the protocol: fetch -> sort by table -> encode -> insert.

`scan` turns a range of a stream into blocks, `build` (one table) into Native bytes, `inserting` sends granted blocks.
A block built here is a pure function of (stream, table, begin, end, revision): never of time, batch size or attempt.
"""
