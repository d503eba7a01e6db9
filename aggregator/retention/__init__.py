"""How long the record is kept, and since when it is whole."""
