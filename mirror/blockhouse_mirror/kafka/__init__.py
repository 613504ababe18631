"""What a mirror's driver asks of the two clusters and writes to the target: topics, bounds of logs, positions."""
