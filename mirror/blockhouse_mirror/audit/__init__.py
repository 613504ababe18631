"""The judge of a mirror: compares what both clusters hold, by the origin that the records themselves name."""
