"""What concerns the whole process: which streams it owns, membership in the groups, health of the replica, status."""
