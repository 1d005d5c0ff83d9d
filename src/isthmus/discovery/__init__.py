"""The discovery service: registrations of relays and imports of Services in, one list of pools out."""
