"""The pages: usage for customers, refusals for support."""
