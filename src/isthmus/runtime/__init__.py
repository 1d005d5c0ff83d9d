"""The machinery between the wire and the features: caches, queues, controllers, election. Knows no kind of
ours."""
