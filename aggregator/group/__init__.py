"""A process's place in its consumer group: whether it was given one, and how it is left without harm.

Why any of this is needed: docs/decisions/0020-joining-and-leaving-a-group.md.
"""
