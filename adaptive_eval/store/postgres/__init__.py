"""The ledger of a run in a PostgreSQL database that many runs share (the extra `postgres`)."""
