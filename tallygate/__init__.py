"""The command, the embedded engines, and the public names of the enforcer."""
