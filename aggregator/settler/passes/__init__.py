"""What is computed of closed minutes: totals, the ledger of grants, and fairness."""
