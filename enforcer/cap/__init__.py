"""The protection of a copy: how many requests it has in flight, whoever sent them."""
