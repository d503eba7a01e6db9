"""Pure arithmetic of the enforcer: time, state and randomness are arguments."""
