"""What a graph needs: pure functions from what is seen to what is to be done and said.

reconcile.py makes the Plan of one look; pods.py and render.py make the objects; children.py compares them
with what is there; status.py says how it stands.
"""
