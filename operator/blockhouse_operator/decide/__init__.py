"""What should be done, given what was seen: pure functions, total, without clock, chance or client library."""
