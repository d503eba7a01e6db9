"""Drives the composed stack: real traffic, crashes, and pages that must agree. Run by scripts/compose-check.sh."""
