"""What `doctor` says of the nodes of a Ray cluster."""

import pickle
import time

import pytest
from scripted_engine import ScriptedEngine

from envs.cli.checks import Status
from envs.options import EngineConfig
from envs.running.remote.messages import WorkerGoneError
from envs.swe import nodes
from envs.swe.config import SWEEnvConfig
from envs.swe.environment import SWEEnv
from envs.swe.nodes import NodeDoctor, examine_nodes
from sandboxes.fleet import HostFigures

CONFIG = SWEEnvConfig(workers="ray", ray={"resources": {"docker": 1}})
FIGURES = HostFigures(0.5, 0.001, 8, 16384, 3, 0.0)


class StandInNodes:
    """Nodes that are this process. behind_s: by which their clocks are behind."""

    def __init__(self, *names, behind_s=0.0):
        self.names, self.behind_s, self.placed = names, behind_s, []

    async def __aenter__(self):
        return self

    async def __aexit__(self, *exc):
        pass

    async def nodes(self):
        return self.names

    async def place(self, node, process, resources):
        if node == "gone":
            raise WorkerGoneError("gone has left the cluster")
        self.placed.append((node, resources))
        return StandInLink(process(), self.behind_s)


class StandInLink:
    """The way to what is in this process, too."""

    def __init__(self, there, behind_s):
        self.there, self.behind_s = there, behind_s

    async def call(self, method, *arguments):
        answer = await getattr(self.there, method)(*pickle.loads(pickle.dumps(arguments)))
        return answer - self.behind_s if method == "clock" else pickle.loads(pickle.dumps(answer))

    async def kill(self):
        pass


@pytest.fixture
def task():
    return SWEEnv.load_tasks(CONFIG)[0][0]


@pytest.fixture
def engine(smollm2_tokenizer):
    with ScriptedEngine(lambda prompt: "yes", smollm2_tokenizer) as engine:
        yield EngineConfig(base_url=engine.url, model_name="scripted")


@pytest.fixture
def measured(monkeypatch):
    """Lets a node be measured without sandboxes. Holds the tasks whose images are wanted."""
    wanted = []

    async def measure(config, task):
        wanted.append(task)
        return FIGURES

    monkeypatch.setattr(nodes, "_measure", measure)
    return wanted


async def examined(cluster, engine, task):
    return [check async for check in examine_nodes(cluster, CONFIG, [engine], task)]


async def test_each_node_is_measured_beside_its_workers(measured, engine, task):
    cluster = StandInNodes("b", "a")
    found = await examined(cluster, engine, task)
    assert [(check.name, check.status) for check in found] == [("node a", Status.OK), ("node b", Status.OK)]
    assert found[0].text == (
        "8 CPUs, 16 GiB, 3 containers; first command after 0.50 s, then 1.0 ms each; clock +0.0 s"
    ), "the clock is compared with ours"
    assert sorted(cluster.placed) == [("a", {}), ("b", {})], "it takes nothing that a run may have"
    assert {one.id for one in measured} == {task.id}


async def test_a_clock_that_differs_is_noted(measured, engine, task):
    (check,) = await examined(StandInNodes("a", behind_s=7.0), engine, task)
    assert (check.status, check.text[-14:]) == (Status.NOTE, "; clock -7.0 s")


async def test_what_is_not_there_on_a_node_is_noted_and_the_others_are_measured(measured, engine, task):
    away = engine.model_copy(update={"base_url": "http://127.0.0.1:9/v1"})
    for cluster, server, said in [
        (StandInNodes("gone"), engine, "gone has left the cluster"),
        (StandInNodes("a"), away, "no inference server answers"),
    ]:
        (check,) = await examined(cluster, server, task)
        assert check.status is Status.NOTE
        assert check.text.startswith("can't be used for now: ") and said in check.text


async def test_another_version_there_is_noted(engine, task, monkeypatch):
    monkeypatch.setattr(nodes, "PACKAGE_VERSION", "9")
    found = await NodeDoctor().look("8", CONFIG, [engine], task, {})
    assert "atropos-agent 9 is installed there, and 8 here" in found.message


async def test_a_cluster_without_nodes_that_fit_is_wrong(engine, task):
    (check,) = await examined(StandInNodes(), engine, task)
    assert check.status is Status.WRONG
    assert check.text == "no node of auto has docker=1; start one, or set --env.ray.resources"


@pytest.mark.docker
async def test_a_task_is_sent_and_a_sandbox_of_its_image_measured(engine, task, base_image):
    config = CONFIG.model_copy(update={"base_image": base_image})
    before = time.monotonic()
    async for check in examine_nodes(StandInNodes("a"), config, [engine], task):
        assert check.status is Status.OK, check.text
        assert 0 < check.data["first_s"] < time.monotonic() - before
