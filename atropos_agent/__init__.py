"""The agent loop, its token tracking and the inference servers it talks to."""

__version__ = "0.2.0"
