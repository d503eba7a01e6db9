"""The live totals of one partition: state, the folding of blocks into it, and its rows."""
