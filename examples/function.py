"""A function that is an environment: products, with the official client and a calculator.

python examples/function.py process --openai.base_url http://localhost:9001/v1 --env.total_steps 4
"""

import sys
from typing import Any

from openai import AsyncOpenAI

from envs.functions import LLM, rollout
from envs.types import Task
from tools import ToolRegistry, calculator

PAIRS = [(17 * n % 990 + 10, 31 * n % 990 + 10) for n in range(110)]
TASKS = [{"id": f"{a}-times-{b}", "instruction": f"What is {a} * {b}?", "answer": a * b} for a, b in PAIRS]
TOOLS: Any = ToolRegistry([calculator])
CLIENT = AsyncOpenAI(api_key="each rollout has its own")  # made once: it reads certificates


@rollout(tasks=TASKS[:100], eval_tasks=TASKS[100:])
async def products(task: Task, llm: LLM) -> float:
    client = CLIENT.with_options(base_url=llm.base_url, api_key=llm.api_key)
    messages: list[Any] = [{"role": "user", "content": task.instruction}]
    while True:
        reply = await client.chat.completions.create(model=llm.model, messages=messages, tools=TOOLS.schemas)
        message: Any = reply.choices[0].message
        messages.append(message.model_dump(exclude_none=True))
        if not message.tool_calls:
            return float(str(task.metadata["answer"]) in (message.content or ""))
        for call in message.tool_calls:
            # The model's mistakes come back as text for it.
            result = await TOOLS.answer(call.function.name, call.function.arguments)
            messages.append({"role": "tool", "tool_call_id": call.id, "content": result})


if __name__ == "__main__":
    sys.exit(products.main())
