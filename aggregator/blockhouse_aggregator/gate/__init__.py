"""The conversation between the driver, which decides, and a task, which does the work of one stream for one lease.

`messages` is the whole vocabulary, `wire` how it travels (authenticated TCP, one JSON object a line), `server` the
driver's end and `client` the task's. Nothing here knows the protocol's rules: `runtime/` does.
"""
