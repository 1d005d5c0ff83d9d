"""What to do for one ModelServing: pure functions of what is wanted, what is there and what time it is."""
