"""One module for each wire API, and what they share."""
