"""The router: one OpenAI-compatible address in front of the pools of every cluster."""
