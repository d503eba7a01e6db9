"""Unit tests of what is asked of the record."""
