"""A run's needs of an environment, which every environment has."""

from envs.running.environment import Environment, InferenceServer


def needs(protocol: type) -> set[str]:
    """Return the public members of a protocol and of those it extends."""
    kinds = [kind for kind in protocol.__mro__ if kind.__module__.startswith("envs.")]
    return {name for kind in kinds for name in {**vars(kind), **kind.__annotations__} if not name.startswith("_")}


def test_an_environment_and_its_servers_have_all_that_a_run_needs(make_env):
    env = make_env()
    assert "ready_tasks" in needs(Environment)
    assert [name for name in needs(Environment) - {"trackers", "tokenizer"} if not hasattr(env, name)] == []
    assert [name for server in env.servers for name in needs(InferenceServer) if not hasattr(server, name)] == []
