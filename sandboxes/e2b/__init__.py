"""Sandboxes of E2B, or of another server that speaks its protocol."""
