"""What a copy measures of itself, for Prometheus and OpenTelemetry: counted beside the path of a request, not on it."""
