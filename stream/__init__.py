"""The log: blocks of decisions to Kafka. Never blocks or fails a request."""
