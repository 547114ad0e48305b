"""Chat templates small enough to read, each with one of the habits that real families have.

They are put on SmolLM2's tokenizer with the control tokens that they write added to it.
"""

import lzma
import tarfile
import tempfile
from copy import copy, deepcopy
from functools import cache
from pathlib import Path

from transformers import AddedToken, AutoTokenizer

CHATML = "{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>\n' }}"
ASK = "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
ALTERNATE = (
    "{% for m in messages %}{% if (m['role'] == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('roles must alternate') }}{% endif %}{% endfor %}"
)

TEMPLATES = {
    "plain": f"{{% for m in messages %}}{CHATML}{{% endfor %}}{ASK}",
    "default system and a date": (
        "{% if messages[0]['role'] != 'system' %}{{ '<|im_start|>system\nYou help.<|im_end|>\n' }}{% endif %}"
        "{{ 'It is ' + strftime_now('%Y-%m-%d') + '.\n' }}"
        f"{{% for m in messages %}}{CHATML}{{% endfor %}}{ASK}"
    ),
    "trims": (
        "{{ '<s>' }}{% for m in messages %}"
        "{{ '<|head|>' + m['role'] + '<|/head|>\n\n' + m['content'] | trim + '<|eot|>' }}"
        "{% endfor %}{% if add_generation_prompt %}{{ '<|head|>assistant<|/head|>\n\n' }}{% endif %}"
    ),
    "drops earlier thinking, opens it": (
        "{{ '<s>' }}{% for m in messages %}{% if m['role'] == 'system' %}{{ m['content'] }}"
        "{% elif m['role'] == 'user' %}{{ '<|User|>' + m['content'] }}"
        "{% else %}{{ '<|Assistant|>' + m['content'].split('</think>')[-1] + '</s>' }}{% endif %}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|Assistant|><think>\n' }}{% endif %}"
    ),
    "keeps thinking since the last question": (
        "{% set ns = namespace(last=0) %}{% for m in messages %}"
        "{% if m['role'] == 'user' and not m['content'].startswith('<tool_response>') %}"
        "{% set ns.last = loop.index0 %}{% endif %}{% endfor %}"
        "{% for m in messages %}{% if m['role'] == 'assistant' and loop.index0 < ns.last %}"
        "{{ '<|im_start|>assistant\n' + m['content'].split('</think>')[-1].lstrip('\n') + '<|im_end|>\n' }}"
        f"{{% else %}}{CHATML}{{% endif %}}{{% endfor %}}{ASK}"
    ),
    "system in the last question": (
        "{{ '<s>' }}{% set ns = namespace(system='') %}{% for m in messages %}{% if m['role'] == 'system' %}"
        "{% set ns.system = m['content'] + '\n\n' %}{% elif m['role'] == 'user' %}"
        "{{ '[INST]' + (ns.system if loop.last else '') + m['content'] + '[/INST]' }}"
        "{% else %}{{ m['content'] | trim + '</s>' }}{% endif %}{% endfor %}"
    ),
    "no system role, roles alternate": (
        f"{ALTERNATE}{{{{ '<s>' }}}}{{% for m in messages %}}"
        "{{ '<turn>' + ('model' if m['role'] == 'assistant' else 'user') + '\n' + m['content'] | trim + '</turn>\n' }}"
        "{% endfor %}{% if add_generation_prompt %}{{ '<turn>model\n' }}{% endif %}"
    ),
    "system in the first question, a start in every turn": (
        "{% set ns = namespace(system='') %}{% for m in messages %}{% if m['role'] == 'system' %}"
        "{% set ns.system = '<<SYS>>\n' + m['content'] + '\n<</SYS>>\n\n' %}{% elif m['role'] == 'user' %}"
        "{{ '<s>[INST] ' + ns.system + m['content'].strip() + ' [/INST]' }}{% set ns.system = '' %}"
        "{% else %}{{ ' ' + m['content'].strip() + ' </s>' }}{% endif %}{% endfor %}"
    ),
    "the model writes a header": (
        "{% for m in messages %}{% if m['role'] == 'assistant' %}"
        "{% if '<|channel|>final<|message|>' in m['content'] or '<|channel|>analysis<|message|>' in m['content'] %}"
        "{{ raise_exception('tags in the content') }}{% endif %}"
        "{{ '<|start|>assistant<|channel|>final<|message|>' + m['content'] }}"
        "{{ '<|return|>' if loop.last and not add_generation_prompt else '<|end|>' }}"
        "{% else %}{{ '<|start|>' + m['role'] + '<|message|>' + m['content'] + '<|end|>' }}{% endif %}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|start|>assistant' }}{% endif %}"
    ),
    "joins messages of one role": (
        "{% for m in messages %}{% if loop.first or messages[loop.index0 - 1]['role'] != m['role'] %}"
        "{{ '<|im_start|>' + m['role'] + '\n' }}{% else %}{{ '\n\n' }}{% endif %}{{ m['content'] }}"
        "{% if loop.last or messages[loop.index0 + 1]['role'] != m['role'] %}{{ '<|im_end|>\n' }}{% endif %}"
        f"{{% endfor %}}{ASK}"
    ),
    "closes with words": (
        "{% for m in messages %}{{ {'system': '', 'user': 'USER: ', 'assistant': 'ASSISTANT: '}[m['role']] }}"
        "{{ m['content'] + ('</s>\n' if m['role'] == 'assistant' else '\n') }}{% endfor %}"
        "{% if add_generation_prompt %}{{ 'ASSISTANT: ' }}{% endif %}"
    ),
}

R1 = (
    "{{ '<s>' }}{% for m in messages %}{% if m['role'] == 'system' %}{{ m['content'] }}"
    "{% elif m['role'] == 'user' %}{{ '<|User|>' + m['content'] }}"
    "{% else %}{{ '<|Assistant|>' + m['content'].split('</think>')[-1] + '</s>' }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|Assistant|>' }}{% endif %}"
)
QWEN = (
    "{% set ns = namespace(last=0) %}{% for m in messages %}"
    "{% if m['role'] == 'user' and not m['content'].startswith('<tool_response>') %}"
    "{% set ns.last = loop.index0 %}{% endif %}{% endfor %}"
    "{% for m in messages %}{% if m['role'] == 'assistant' %}{% set content = m['content'] %}{% set thought = '' %}"
    "{% if '</think>' in content %}{% set thought = content.split('</think>')[0].split('<think>')[-1].strip('\n') %}"
    "{% set content = content.split('</think>')[-1].lstrip('\n') %}{% endif %}{{ '<|im_start|>assistant\n' }}"
    "{% if loop.index0 > ns.last and thought %}{{ '<think>\n' + thought + '\n</think>\n\n' }}{% endif %}"
    f"{{{{ content + '<|im_end|>\n' }}}}{{% else %}}{CHATML}{{% endif %}}{{% endfor %}}"
)
TEMPLATES |= {
    "drops earlier thinking": R1,
    "drops earlier thinking, closes it": (
        R1.replace(".split('</think>')[-1]", ".split('</think>', 1)[-1]").replace(
            "{{ '<|Assistant|>'", "{{ '<|Assistant|></think>'"
        )
    ),
    "leaves empty thinking out": QWEN + ASK,
    "opens empty thinking": QWEN + ASK.replace("assistant\n", "assistant\n<think>\n\n</think>\n\n"),
    "an end takes up the white space after it": (
        "{% for m in messages %}{{ '<|' + m['role'] + '|>\n' + m['content'] + '<|done|>\n' }}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|assistant|>\n' }}{% endif %}"
    ),
}
DRIFTING = {
    "keeps the last two thoughts": (
        "{% set ns = namespace(thoughts=0, seen=0) %}"
        "{% for m in messages %}{% if m['role'] == 'assistant' and '</think>' in m['content'] %}"
        "{% set ns.thoughts = ns.thoughts + 1 %}{% endif %}{% endfor %}"
        "{% for m in messages %}{% set thought = m['role'] == 'assistant' and '</think>' in m['content'] %}"
        "{% if thought %}{% set ns.seen = ns.seen + 1 %}{% endif %}{% if thought and ns.seen <= ns.thoughts - 2 %}"
        "{{ '<|im_start|>assistant\n' + m['content'].split('</think>')[-1].lstrip('\n') + '<|im_end|>\n' }}"
        f"{{% else %}}{CHATML}{{% endif %}}{{% endfor %}}{ASK}"
    ),
    "shows the last messages": (
        "{% for m in messages %}{% if loop.first or loop.revindex <= 7 %}" + CHATML + "{% endif %}{% endfor %}" + ASK
    ),
}
"""Templates that do with long conversations what they don't do with short ones."""

_CONTROLS = ("<s>", "</s>", "[INST]", "[/INST]", "<turn>", "</turn>", "<|head|>", "<|/head|>", "<|eot|>", "<|User|>")
_HARMONY = ("<|Assistant|>", "<|start|>", "<|channel|>", "<|message|>", "<|end|>", "<|return|>")
_GREEDY = ("<|system|>", "<|user|>", "<|assistant|>", "<|tool|>", "<|done|>")
"""Take up the white space after them."""

REAL = {
    "qwen2_5": "qwen2_5",
    "qwen3": "qwen3",
    "llama3_1": "llama3_1",
    "gemma2": "gemma2",
    "deepseek_v3": "deepseek_v3",
    "deepseek_v31": "deepseek_v31",
    "mistral_v3": "mistral_v3",
    "gptoss": "gptoss",
    "deepseek_r1": "deepseek_v3",
    "qwq": "qwen3",
}
"""Families whose tokenizers are other people's: the folder that each is in. Their own template, or one of these."""
TOKENIZERS = ("smollm2", *TEMPLATES, *REAL)
REAL_TEMPLATES = {
    "deepseek_r1": (
        "{{ bos_token }}{% for m in messages %}{% if m['role'] == 'system' %}{{ m['content'] }}"
        "{% elif m['role'] == 'user' %}{{ '<｜User｜>' + m['content'] }}{% else %}"
        "{{ '<｜Assistant｜>' + m['content'].split('</think>')[-1] + '<｜end▁of▁sentence｜>' }}{% endif %}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<｜Assistant｜>' }}{% endif %}"
    ),
    "qwq": (
        "{% for m in messages %}{% if m['role'] == 'assistant' %}"
        "{{ '<|im_start|>assistant\n' + m['content'].split('</think>')[-1].lstrip('\n') + '<|im_end|>\n' }}"
        f"{{% else %}}{CHATML}{{% endif %}}{{% endfor %}}"
        "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n<think>\n' }}{% endif %}"
    ),
}


_READ = {}
"""Tokenizers by the names of their folders."""


def read(folder):
    """The tokenizer in a folder, the same for all who ask: to read it takes up to two seconds of a processor."""
    if folder.name not in _READ:
        _READ[folder.name] = AutoTokenizer.from_pretrained(folder)
    return _READ[folder.name]


def read_all(given):
    """Read all that `--tokenizers` names before they are asked for, for processes that are forked from this one."""
    with tempfile.TemporaryDirectory() as folder:
        unpack(given, folder)
        for name, place in REAL.items():
            if Path(folder, place).is_dir():
                real(Path(folder), name)


def unpack(given, into):
    """Unpack tokenizers of a folder that lie there as archives."""
    for archive in given.glob("*.tar.xz"):
        with lzma.open(archive) as stream, tarfile.open(fileobj=stream) as tar:
            tar.extractall(into, filter="data")


def with_template(tokenizer, source):
    """A tokenizer that differs in its template. Special tokens and options are its own, but not the library behind it,
    nor what is in its lists: a vocabulary of some 100,000 tokens."""
    own = copy(tokenizer)
    vars(own).update({name: copy(value) for name, value in vars(tokenizer).items() if isinstance(value, (dict, list))})
    own.chat_template = source
    return own


def real(folder, name):
    """A tokenizer of other people's, with its own template or one from above."""
    return _real(read(folder / REAL[name]), name)


@cache
def _real(tokenizer, name):
    return with_template(tokenizer, REAL_TEMPLATES.get(name, tokenizer.chat_template))


@cache
def _with_controls(smollm2, greedy):
    """SmolLM2's tokenizer with the control tokens that the templates above write."""
    tokenizer = deepcopy(smollm2)
    tokenizer.add_special_tokens({"additional_special_tokens": [*_CONTROLS, *_HARMONY]})
    if greedy:
        tokenizer.add_tokens([AddedToken(content, rstrip=True) for content in _GREEDY], special_tokens=True)
    return tokenizer


@cache
def family(smollm2, name):
    """SmolLM2's tokenizer with a template from above, the same for all who ask."""
    source = (TEMPLATES | DRIFTING)[name]
    tokenizer = with_template(_with_controls(smollm2, "<|done|>" in source), source)
    for eos in ("<|return|>", "</s>", "</turn>", "<|eot|>", "<|done|>"):
        if eos in source:
            tokenizer.eos_token = eos
            break
    return tokenizer
