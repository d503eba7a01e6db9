"""What Tallygate costs, measured: one command each, a table out, a JSON file beside it."""
