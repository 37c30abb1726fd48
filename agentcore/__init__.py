"""A synchronous, thread-based agent loop."""
