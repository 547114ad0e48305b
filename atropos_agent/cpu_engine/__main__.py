"""Command line of the embedded inference server: `python -m atropos_agent.cpu_engine --model smollm2`."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import signal
import socket
import sys
from collections.abc import Generator

if __name__ == "__main__":
    # Neither what is imported nor a model that is read is anything that a traceback would explain.
    signal.signal(signal.SIGINT, signal.SIG_DFL)

from sandboxes.installing import install

try:
    import torch
    import uvicorn
except ModuleNotFoundError as error:
    if __name__ != "__main__":
        raise
    sys.exit(f"the embedded inference server needs {error.name}: {install('engine')}")

from atropos_agent.cpu_engine.model import DEFAULT_CACHE, ModelNotFound, load
from atropos_agent.cpu_engine.sampling import LogprobsMode
from atropos_agent.cpu_engine.scheduler import Engine
from atropos_agent.cpu_engine.server import Server
from sandboxes.arguments import Parser, existing_path, nonnegative_int, output_folder, port, positive_int
from sandboxes.log import TIMED, set_up_log


class _HTTPServer(uvicorn.Server):
    """uvicorn with a message when it is ready, and without its signal handling, which would end the
    process by the signal itself."""

    def __init__(self, config: uvicorn.Config, announcement: str) -> None:
        super().__init__(config)
        self._announcement = announcement

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            print(self._announcement, flush=True)

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield


def main(arguments: list[str] | None = None) -> int:
    """Serve until SIGTERM or SIGINT. Returns the exit status."""
    options = _parser().parse_args(arguments)
    set_up_log(options.log_level.upper(), TIMED)
    try:
        listener = _listen(options.host, options.port)
    except OSError as error:
        print(f"port {options.port} on {options.host} can't be used ({error}); choose another --port", file=sys.stderr)
        return 1
    torch.set_num_threads(options.threads)
    try:
        loaded = load(options.model, cache=options.cache, adapter=options.adapter, max_model_len=options.max_model_len)
    except (ModelNotFound, ValueError, OSError) as error:
        print(f"model {options.model} can't be served: {error}", file=sys.stderr)
        return 1
    engine = Engine(
        loaded.model,
        loaded.tokenizer,
        loaded.eos_ids,
        logprobs_mode=LogprobsMode(options.logprobs_mode),
        max_batch=options.max_batch,
        cache_mb=options.prefix_cache_mb,
    )
    server = Server(engine, options.served_model_name or options.model, loaded.path)
    asyncio.run(
        _serve(server, listener, f"Ready: {options.model} at http://{options.host}:{listener.getsockname()[1]}")
    )
    return 0


async def _serve(server: Server, listener: socket.socket, announcement: str) -> None:
    http = _HTTPServer(
        uvicorn.Config(
            server.app(), ws="none", log_level="warning", timeout_graceful_shutdown=1, timeout_keep_alive=600
        ),
        announcement,
    )

    def leave() -> None:
        # Requests in work are answered with 503 now: a long reply would outlast the one who waits.
        server.abort()
        http.should_exit = True

    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, leave)
    await http.serve(sockets=[listener])


def _listen(host: str, port: int) -> socket.socket:
    """Bind a socket before the model is loaded: so a busy port is reported at once."""
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
    except OSError:
        listener.close()
        raise
    return listener


def _parser() -> argparse.ArgumentParser:
    parser = Parser(prog="python -m atropos_agent.cpu_engine", description=__doc__)
    parser.add_argument("--model", default="smollm2", help="smollm2, tiny (random weights), a folder or a hub name")
    parser.add_argument("--served-model-name", help="what requests call the model (default: as --model)")
    parser.add_argument(
        "--adapter", type=existing_path, help="LoRA adapter to merge: a PEFT folder or a .safetensors file"
    )
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=port, default=9004, help="0 takes a free one (default: %(default)s)")
    parser.add_argument(
        "--max-model-len", type=positive_int, default=4096, help="prompt and reply together (default: %(default)s)"
    )
    parser.add_argument("--max-batch", type=positive_int, default=64, help="sequences at once (default: %(default)s)")
    parser.add_argument(
        "--prefix-cache-mb",
        type=nonnegative_int,
        default=2048,
        help="kept of finished sequences (default: %(default)s)",
    )
    parser.add_argument(
        "--threads", type=positive_int, default=1, help="threads of one operation (default: %(default)s)"
    )
    parser.add_argument(
        "--logprobs-mode",
        choices=[mode.value for mode in LogprobsMode],
        default=LogprobsMode.PROCESSED.value,
        help="which distribution logprobs are of; vLLM's own default is raw_logprobs (default: %(default)s)",
    )
    parser.add_argument(
        "--cache", type=output_folder, default=DEFAULT_CACHE, help="folder of converted models (default: %(default)s)"
    )
    parser.add_argument("--log-level", default="info", choices=["debug", "info", "warning", "error"])
    return parser


if __name__ == "__main__":
    sys.exit(main())
