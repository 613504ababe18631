"""The operator's front door: kopf's events become keys in a queue, and nothing else happens in a handler."""
