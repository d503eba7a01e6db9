"""The whole line under load: broker, recorder, Faust worker, ClickHouse and pages, live and draining a backlog."""
