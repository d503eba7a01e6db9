"""From messages of the log to the columns of the exact record: what counts, what is pending, what was there before."""
