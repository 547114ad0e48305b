"""Records: saved rollouts, metrics and pages."""
