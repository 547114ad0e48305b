"""Delivery: rows, packets, and the trainer API that takes them."""
