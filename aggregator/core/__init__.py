"""Pure arithmetic of the aggregator: functions over (state, block)."""
