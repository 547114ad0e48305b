"""Delivery: rows, packets, and their way to the trainer API."""
