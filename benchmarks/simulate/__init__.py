"""Six designs of a distributed limiter over the same simulated traffic: what each gets wrong, and what it costs."""
