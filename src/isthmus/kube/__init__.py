"""The wire: cluster configuration, a typed client, and watches. Knows no kind of ours."""
