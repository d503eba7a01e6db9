"""Messages on disk while Kafka does not take them: bounded, in order, found again after a kill."""
