"""Dead letters for an operator: what could not be read, why, and how it is read after all."""
