"""Erasing one caller from the record on request, and knowing afterwards what was erased."""
