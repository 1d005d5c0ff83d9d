"""Random histories against the real API server."""
