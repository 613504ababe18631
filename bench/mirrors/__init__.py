"""The parts of `bench/mirror.py`: two clusters, contestants, rounds of a backlog, a steady stream, a hand-over."""
