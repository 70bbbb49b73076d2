"""A study as a value, ours like yours: what it asks, where it is found, what it trains, and what is measured."""
