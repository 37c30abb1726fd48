"""Benchmarks: what the loop costs beside the wire, against a floor that only splits lines and parses JSON."""
