"""Operation -> one idempotent step. Nothing here sleeps or remembers: what must last is in the Outcome."""
