"""Sandboxes in pods of a Kubernetes cluster. `backend` needs the extra `kubernetes`, `options` does not."""
