"""Nearest vectors, and the shortlists of labels that are made with them."""
