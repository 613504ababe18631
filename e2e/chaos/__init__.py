"""Chaos on real servers: faults on a schedule or at random from a seed, under steady production, then the proof."""
