"""The commands of `blockhouse mirror`."""
