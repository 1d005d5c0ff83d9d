"""One script per question; each prints a table. `python -m benchmarks` plays the operator's scenarios."""
