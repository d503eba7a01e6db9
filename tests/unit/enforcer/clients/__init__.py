"""Unit tests of the client helper."""
