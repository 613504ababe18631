"""The demonstration of a mirror: load grows, wanders and falls, tasks follow, processes die, every record arrives."""
