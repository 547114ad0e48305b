"""Inference servers, as clients see them."""
