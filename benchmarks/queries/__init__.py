"""How long the product's own questions take on a month of a large fleet: pages, live figures, disputes."""
