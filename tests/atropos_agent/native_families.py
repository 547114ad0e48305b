"""Families whose templates write calls in a format of their own.

Real tokenizers where there is a folder of them. For the others there is none: their templates, in the folder beside
this file, are WRITTEN BY HAND from the models' public descriptions, on SmolLM2's tokenizer with the control tokens
added that they write. They stand for what those templates do with tools, calls, thinking and results; they are not
those templates.
"""

from copy import deepcopy
from functools import cache
from pathlib import Path

from families import read, with_template
from transformers import AddedToken

from atropos_agent.fitted import FittedFormat
from atropos_agent.tokens.template import ChatTemplate

BY_HAND = {
    "Qwen3-Coder, by hand": (
        "qwen_coder",
        "<|im_end|>",
        "<tool_call> </tool_call> <tool_response> </tool_response>",
    ),
    "Seed-OSS, by hand": (
        "seed_oss",
        "<seed:eos>",
        "<seed:bos> <seed:eos> <seed:tool_call> </seed:tool_call> <seed:think> </seed:think>",
    ),
    "Nemotron Nano v2, by hand": (
        "nemotron",
        "<SPECIAL_12>",
        "<SPECIAL_10> <SPECIAL_11> <SPECIAL_12> <TOOLCALL> </TOOLCALL> <TOOL_RESPONSE> </TOOL_RESPONSE>",
    ),
    "GLM 4.5, by hand": (
        "glm",
        "<|endoftext|>",
        "[gMASK] <sop> <|system|> <|user|> <|assistant|> <|observation|> <think> </think> <tool_call> </tool_call> "
        "<arg_key> </arg_key> <arg_value> </arg_value> <tool_response> </tool_response>",
    ),
    "Kimi K2, by hand": (
        "kimi",
        "<|im_end|>",
        "<|im_system|> <|im_user|> <|im_assistant|> <|im_middle|> <|tool_calls_section_begin|> "
        "<|tool_calls_section_end|> <|tool_call_begin|> <|tool_call_end|> <|tool_call_argument_begin|>",
    ),
    "Mistral v11, by hand": (
        "mistral_args",
        "</s>",
        "<s> </s> [INST] [/INST] [SYSTEM_PROMPT] [/SYSTEM_PROMPT] [TOOL_CALLS] [ARGS] [TOOL_RESULTS] [/TOOL_RESULTS] "
        "[AVAILABLE_TOOLS] [/AVAILABLE_TOOLS]",
    ),
    "MiniMax M2, by hand": (
        "minimax",
        "[e~[",
        "]~!b[ ]~b] [e~[ <think> </think> <minimax:tool_call> </minimax:tool_call>",
    ),
    "MiniMax M3, by hand": (
        "minimax_m3",
        "[e~[",
        "]~!b[ ]~b] [e~[ <mm:think> </mm:think> ]<]minimax[>[",
    ),
    "Kimi K3, by hand": (
        "kimi_k3",
        "<|end_of_msg|>",
        "<|open|> <|close|> <|sep|> <|end_of_msg|>",
    ),
    "Gemma 4, by hand": (
        "gemma4",
        "<turn|>",
        "<bos> <|turn> <turn|> <|tool> <tool|> <|tool_call> <tool_call|> <|tool_response> <tool_response|> "
        '<|"|> <|channel> <channel|>',
    ),
    "DeepSeek V3.2, by hand": (
        "deepseek_v32",
        "<｜end▁of▁sentence｜>",
        # V3's tokens too, which its tokenizer still has.
        "<｜begin▁of▁sentence｜> <｜end▁of▁sentence｜> <｜User｜> <｜Assistant｜> <think> </think> ｜DSML｜ "
        "<｜tool▁calls▁begin｜> <｜tool▁calls▁end｜> <｜tool▁call▁begin｜> <｜tool▁call▁end｜> <｜tool▁sep｜>",
    ),
    "Llama 4, by hand": (
        "pythonic",
        "<|eot|>",
        "<|begin_of_text|> <|header_start|> <|header_end|> <|eot|> <|python_start|> <|python_end|>",
    ),
}
"""By name: the template's file, the end of sequence, and the control tokens."""
REAL = {
    "qwen2_5": ("qwen2_5", {}),
    "qwen3": ("qwen3", {}),
    "qwen3, no thinking": ("qwen3", {"enable_thinking": False}),
    "llama3_1": ("llama3_1", {}),
    "gemma2": ("gemma2", {}),
    "deepseek_v3": ("deepseek_v3", {}),
    "deepseek_v31": ("deepseek_v31", {}),
    "deepseek_v31, thinking": ("deepseek_v31", {"thinking": True}),
    "mistral_v3": ("mistral_v3", {}),
    "mistral_v3, folded": ("mistral_v3", {"fold_system": True}),
    "gptoss": ("gptoss", {}),
}
FORMATS_OF = {
    "smollm2": "Hermes",
    "qwen2_5": "Hermes",
    "qwen3": "Hermes",
    "llama3_1": "LlamaJson",
    "gemma2": "Plain",
    "deepseek_v3": "DeepSeekV3",
    "deepseek_v31": "DeepSeekV31",
    "mistral_v3": "Mistral",
    "gptoss": "Harmony",
    "Qwen3-Coder": "QwenCoder",
    "Seed-OSS": "SeedOss",
    "Nemotron Nano v2": "Nemotron",
    "GLM 4.5": "Glm",
    "Kimi K2": "Kimi",
    "Mistral v11": "MistralArgs",
    "MiniMax M2": "MiniMax",
    "MiniMax M3": "MiniMaxM3",
    "Kimi K3": "KimiK3",
    "Gemma 4": "Gemma4",
    "DeepSeek V3.2": "DeepSeekV32",
    "Llama 4": "Pythonic",
}
"""The format that each family is known by: what stands before the comma of its name."""

FAMILIES = ("smollm2", *BY_HAND, *REAL)


@cache
def _with_controls(smollm2, name):
    """SmolLM2's tokenizer with the control tokens of a family."""
    tokenizer = deepcopy(smollm2)
    _, eos, tokens = BY_HAND[name]
    added = [AddedToken(token, special=True, normalized=False) for token in tokens.split()]
    tokenizer.add_tokens(added, special_tokens=True)
    tokenizer.eos_token = eos
    return tokenizer


def native_tokenizer(smollm2, name):
    """SmolLM2's tokenizer with a template that is written here by hand."""
    source = (Path(__file__).parent / "templates" / f"{BY_HAND[name][0]}.jinja").read_text()
    return with_template(_with_controls(smollm2, name), source)


def one_system_message(smollm2):
    """The format of a template in the way of Qwen3.5's, written by hand: it takes one system message, the first."""
    source = (Path(__file__).parent / "templates" / "qwen35.jinja").read_text()
    tokenizer = with_template(_with_controls(smollm2, "Qwen3-Coder, by hand"), source)
    return FittedFormat.of("auto", ChatTemplate(tokenizer))


def fitted_family(smollm2, folder, name, **more):
    """A family's own tool format, as `auto` finds it; None where its tokenizer is not there."""
    if name in BY_HAND or name == "smollm2":
        tokenizer = smollm2 if name == "smollm2" else native_tokenizer(smollm2, name)
        return FittedFormat.of("auto", ChatTemplate(tokenizer), **more)
    where, options = REAL[name]
    if folder is None or not (folder / where).is_dir():
        return None
    return FittedFormat.of("auto", ChatTemplate(read(folder / where), **options), **more)
