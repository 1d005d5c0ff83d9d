"""What to do about one relay, as pure functions: publish or withdraw, which exports, which children."""
