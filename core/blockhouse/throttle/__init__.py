"""How fast replicas may be copied so that clients do not notice: rates, lists and their order, by arithmetic alone."""
