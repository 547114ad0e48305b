from shared_backend import docker_backend, pytest_collection_modifyitems  # noqa: F401
