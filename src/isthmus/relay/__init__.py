"""The relay: a small service beside a pool that says whose pool it is. It never serves inference."""
