"""The second stage of the live figures: totals over all partitions, and their rows."""
