"""``tallygate audit lag``: which reader of the log is behind, by how much, and since when."""
