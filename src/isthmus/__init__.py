"""Isthmus: a Kubernetes operator that takes LLM serving from one cluster to many.

docs/architecture.md is the map: which room holds what, and which may import which.
"""

__version__ = "0.1.0"
