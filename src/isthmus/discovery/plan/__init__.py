"""What the discovery service decides, pure: leases, the join, lists and what changes in them."""
