"""Images: pulled, built, and removed."""
