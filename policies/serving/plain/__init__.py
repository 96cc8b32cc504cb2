"""A compiled core for runs with nothing special, whose oracle is the general way."""
