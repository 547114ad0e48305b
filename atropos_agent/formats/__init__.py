"""Tool formats, and the one place for the choice of a format by name."""

from __future__ import annotations

from collections.abc import Mapping

from atropos_agent.formats.base import ToolFormat
from atropos_agent.formats.deepseek import DeepSeekV3, DeepSeekV31
from atropos_agent.formats.gemma import Gemma4
from atropos_agent.formats.gigachat import GigaChat, GigaChat3
from atropos_agent.formats.glm import Glm, Hy3
from atropos_agent.formats.harmony import Harmony
from atropos_agent.formats.hermes import Hermes
from atropos_agent.formats.invoke import DeepSeekV4, DeepSeekV32, KimiK3, MiniCpm5, MiniMax
from atropos_agent.formats.kimi import Kimi
from atropos_agent.formats.listed import Apertus, Apriel, Command, MiniMaxM1, Nemotron
from atropos_agent.formats.llama import LlamaJson
from atropos_agent.formats.minimax_m3 import MiniMaxM3
from atropos_agent.formats.mistral import Mistral, MistralArgs
from atropos_agent.formats.plain import Plain
from atropos_agent.formats.pythonic import Lfm2, Pythonic
from atropos_agent.formats.qwen_coder import QwenCoder, SeedOss
from atropos_agent.formats.sections import Functionary, Solar
from atropos_agent.types import Reply
from sandboxes.naming import resolve

AUTO, TEMPLATE = "auto", "template"
"""Names for the template's own format: if no format reads the template's calls, the first takes text instead."""

FORMATS: Mapping[str, type[ToolFormat]] = {
    "hermes": Hermes,
    "qwen_coder": QwenCoder,
    "seed_oss": SeedOss,
    "glm": Glm,
    "llama_json": LlamaJson,
    "mistral": Mistral,
    "mistral_args": MistralArgs,
    "deepseek_v3": DeepSeekV3,
    "deepseek_v31": DeepSeekV31,
    "deepseek_v32": DeepSeekV32,
    "deepseek_v4": DeepSeekV4,
    "kimi": Kimi,
    "minimax": MiniMax,
    "gemma4": Gemma4,
    "pythonic": Pythonic,
    "lfm2": Lfm2,
    "nemotron": Nemotron,
    "apriel": Apriel,
    "minimax_m3": MiniMaxM3,
    "minimax_m1": MiniMaxM1,
    "kimi_k3": KimiK3,
    "hy3": Hy3,
    "solar": Solar,
    "gigachat3": GigaChat3,
    "gigachat31": GigaChat,
    "command": Command,
    "minicpm5": MiniCpm5,
    "apertus": Apertus,
    "functionary": Functionary,
    "harmony": Harmony,
    "plain": Plain,
}
"""The formats of this package, by name."""


def load_format(name: str) -> ToolFormat:
    """Return the format of this name, or of a dotted path such as `package.module:Class`.

    Raises ValueError, which says what to give instead.
    """
    found = resolve("--env.tool_format", name, FORMATS, "atropos_agent.tool_formats")
    if not (isinstance(found, type) and issubclass(found, ToolFormat)):
        raise ValueError(f"--env.tool_format {name}: this is no subclass of atropos_agent.formats.ToolFormat")
    try:
        return found()
    except TypeError as error:
        # An abstract method that is missing, or an argument that it wants.
        raise ValueError(f"--env.tool_format {name}: it can't be made: {error}") from error


__all__ = ["FORMATS", "Reply", "ToolFormat", "load_format"]
