"""The engines that a machine without servers runs: Valkey, a Kafka broker and ClickHouse as child processes.

Only starts, watches and stops them; never talks to them beyond the question whether they are ready.
"""
