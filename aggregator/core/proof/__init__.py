"""Whether the record is what was written: the chain, blocks rebuilt from rows, holes, and what excuses them."""
