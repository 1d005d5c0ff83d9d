"""Typed objects of every API that is read or written, and the CRDs generated from them. No I/O."""
