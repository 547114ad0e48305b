"""A function that adds numbers, as a program."""

import json
import sys

from openai import AsyncOpenAI, DefaultAsyncHttpxClient

from envs.functions import rollout
from tools import Tool, calculator

TASKS = [{"id": f"sum-{n}", "instruction": f"What is {n} + {n}?", "answer": str(2 * n)} for n in range(6)]
UNREAD = DefaultAsyncHttpxClient(verify=False)  # certificates, which take their time
CLIENT = AsyncOpenAI(api_key="each rollout has its own", http_client=UNREAD)


@rollout(tasks=TASKS, eval_tasks=TASKS[:3])
async def sums(task, llm):
    client = CLIENT.with_options(base_url=llm.base_url, api_key=llm.api_key)
    messages = [{"role": "user", "content": task.instruction}]
    while True:
        options = {"model": llm.model, "messages": messages, "tools": [Tool.of(calculator).schema]}
        message = (await client.chat.completions.create(**options)).choices[0].message
        messages.append(message.model_dump(exclude_none=True))
        if not message.tool_calls:
            return float(message.content.strip() == task.metadata["answer"])
        for call in message.tool_calls:
            result = await calculator(**json.loads(call.function.arguments))
            messages.append({"role": "tool", "tool_call_id": call.id, "content": result})


if __name__ == "__main__":
    sys.exit(sums.main())
