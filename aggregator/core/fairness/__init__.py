"""The exact bucket, replayed over the merged record: what it would have said, and why the fleet said otherwise."""
