"""The commands `blockhouse aggregator|streams|quorum|schema`: thin, and nothing imports them."""
