"""The conversation between the driver, which decides, and a task, which does the work of one stream for one lease.

`messages` is the whole vocabulary, `server` the driver's end and `client` the task's; how they find that they may trust
each other, and how messages travel, is core's (`blockhouse.gate`). Nothing here knows the protocol's rules: `runtime/`
does.
"""
