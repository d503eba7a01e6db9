"""The demonstration: a fleet of gateways, real HTTP requests, and a count that must agree to the last one."""
