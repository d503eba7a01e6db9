"""Counts that must agree: the record, what copies counted themselves, and what was settled of grants."""
