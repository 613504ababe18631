"""The driver of a mirror: what is mirrored, by which tasks, from where; and what it reports of itself."""
