"""Sandboxes for other people's frameworks, one module each. A module imports its framework, and nothing imports it but
this framework or you."""
