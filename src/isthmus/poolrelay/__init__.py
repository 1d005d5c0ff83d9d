"""Pool relays: the workload that speaks for a pool, and the exports that let other clusters find it."""
