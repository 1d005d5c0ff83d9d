"""The composition root: validated settings in, running processes out."""
