"""Nearest-neighbour search, and the label shortlists made with it."""
