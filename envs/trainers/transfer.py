"""Hand the weights of a trainer in this process to the embedded inference server, in TRL's protocol too."""

from __future__ import annotations

import asyncio
import logging
import shutil
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from safetensors.torch import save_file

from atropos_agent.engines.http import client_of
from envs.trainers.weights import RETRY_S, EmbeddedServer, WeightsRefusedError, hand_over

logger = logging.getLogger(__name__)

CONFIG = "config.json"


class LoadedWeights:
    """Weights written to a folder, and loaded from there: again when the server comes back without them. It is
    a WeightTransferProtocol of TRL's.

    engine: address of the inference server. folder: of the weights, visible to that server, too; the last two are kept.
    model: the folder of its first weights. version: of the first weights sent; each time it is one more.
    """

    def __init__(self, engine: str, folder: Path, model: Path, version: int = 0) -> None:
        self._engine = engine.rstrip("/").removesuffix("/v1")
        self._folder, self._model, self._next = folder.absolute(), model, version
        self._sent: tuple[Path, int] | None = None
        self._sending, self._ended = threading.Lock(), threading.Event()

    def send_weights(self, iterator: Iterable[tuple[str, Any]]) -> None:
        """See TRL's protocol: pairs of name and tensor."""
        tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in iterator}
        self.load(
            self._next, lambda folder: save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
        )

    def load(self, version: int, save: Callable[[Path], Any]) -> None:
        """Let the server sample from the weights written by `save` into a folder, as this version. Waits for a silent
        server; raises WeightsRefusedError."""
        target, partial = self._folder / f"step-{version:06}", self._folder / ".partial"
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        save(partial)
        if not (partial / CONFIG).exists():
            if not (given := self._model / CONFIG).exists():
                raise ValueError(f"{given} is not there; give the folder that the inference server's model is in")
            shutil.copyfile(given, partial / CONFIG)
        with self._sending:
            shutil.rmtree(target, ignore_errors=True)
            partial.rename(target)
            # The server may have weights of this version from a step lost with its process.
            asyncio.run(self._send_weights(target, version, force=True))
            kept = {target, *([self._sent[0]] if self._sent else [])}
            self._sent, self._next = (target, version), version + 1
        # By their numbers the last ones may be those that were lost with their process.
        for old in set(self._folder.glob("step-*")) - kept:
            shutil.rmtree(old)

    async def _send_weights(self, folder: Path, version: int, *, force: bool = False) -> None:
        async with client_of(self._engine, timeout=300.0) as http:
            await hand_over(EmbeddedServer(http), folder, version, force=force)

    def _keep(self) -> None:
        while not self._ended.wait(RETRY_S):
            with self._sending:
                try:
                    if self._sent is not None:
                        asyncio.run(self._send_weights(*self._sent))
                except WeightsRefusedError as error:
                    logger.error("%s", error)

    def init_weight_transfer(self) -> None:
        """See TRL's protocol: from now on the server keeps the weights sent to it."""
        threading.Thread(target=self._keep, name="weights", daemon=True).start()

    def pause(self) -> None:
        """See TRL's protocol: the server takes weights between two tokens."""

    def resume(self) -> None:
        """See TRL's protocol."""

    def destroy(self) -> None:
        """See TRL's protocol."""
        self._ended.set()
