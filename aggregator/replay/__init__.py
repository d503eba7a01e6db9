"""Rebuilding the derived tables, and from the log the raw ones, beside the tables that are in use."""
