"""Chat templates small enough to read, each with one of the habits that real families have.

They are put on SmolLM2's tokenizer with the control tokens that they write added to it.
"""

from copy import deepcopy

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

_CONTROLS = ("<s>", "</s>", "[INST]", "[/INST]", "<turn>", "</turn>", "<|head|>", "<|/head|>", "<|eot|>", "<|User|>")
_HARMONY = ("<|Assistant|>", "<|start|>", "<|channel|>", "<|message|>", "<|end|>", "<|return|>")


def family(smollm2, name):
    """SmolLM2's tokenizer with a template from above."""
    tokenizer = deepcopy(smollm2)
    tokenizer.add_special_tokens({"additional_special_tokens": [*_CONTROLS, *_HARMONY]})
    tokenizer.chat_template = TEMPLATES[name]
    for eos in ("<|return|>", "</s>", "</turn>", "<|eot|>"):
        if eos in tokenizer.chat_template:
            tokenizer.eos_token = eos
            break
    return tokenizer
