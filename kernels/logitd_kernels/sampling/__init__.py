"""Sampling: an ordered registry of small transforms, and one draw."""
