"""Settled totals: what is due, when they disagree with live ones, and what was revised."""
