"""Servers of others that sample too, each in an environment of its own, and the same work for all of them."""
