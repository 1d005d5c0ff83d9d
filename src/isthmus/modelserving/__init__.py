"""ModelServing: store (what is), plan (what to do, pure), controller (do it), dump (show it)."""
