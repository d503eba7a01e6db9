"""What is asked of the record when somebody disputes it: counts that must agree, the chain, totals as they were."""
