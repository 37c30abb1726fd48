"""Helpers for the tests of programs that use the library."""
