"""What `bench/mirror.py` is made of: two clusters, contestants, rounds of a backlog, a steady stream, a hand-over."""
