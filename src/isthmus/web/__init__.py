"""The HTTP skeleton of every listener: bind, limits, deadlines, framing, drain, method guard, error pages."""
