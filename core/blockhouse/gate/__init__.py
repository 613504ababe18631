"""The authenticated conversation between a driver, which decides, and its tasks, each of which does work for one lease.

`messages` is how it begins, `wire` how it travels (authenticated TCP, one JSON object a line), `server` the driver's
end and `client` the task's. What is spoken about afterwards is each system's own: an adapter of its messages.
"""
