"""What stands on the log, in bytes and in memory. No I/O."""
