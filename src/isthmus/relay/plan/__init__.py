"""What a relay makes of what it sees; pure."""
