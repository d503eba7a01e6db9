"""The pages of docs/: every snippet runs."""
