"""Tests of how long the record is kept."""
