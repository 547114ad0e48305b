"""Agents as their makers' pages show them, with a terminal: each works until it is done or has had two turns."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Callable
from itertools import islice
from typing import Any, ClassVar

from envs.functions import LLM
from envs.lab.synthetic import TOOLS
from tools import default_tools

TURNS = 2
SCHEMAS: list[Any] = default_tools(None, TOOLS).schemas  # type: ignore[arg-type]
FUNCTIONS = [schema["function"] for schema in SCHEMAS]

Run = Callable[[str], Awaitable[str]]
"""Runs a command in the sandbox, and returns what it printed."""


async def called(name: str, arguments: Any, run: Run) -> str | None:
    """What a tool says; None where the work is over."""
    if name == "submit":
        return None
    try:
        given = json.loads(arguments) if isinstance(arguments, str) else arguments
        return await run(given["command"])
    except (ValueError, TypeError, KeyError) as error:
        return f"Error: {error!r}"


def callables(run: Run) -> list[tuple[dict[str, Any], Callable[..., Awaitable[str | None]]]]:
    """The tools as functions, each with what is told of it."""

    async def terminal(**given: Any) -> str | None:
        return await called("terminal", given, run)

    async def submit(**_: Any) -> str:
        return "submitted"

    return list(zip(FUNCTIONS, (terminal, submit), strict=True))


async def chat(llm: LLM, system: str, task: str, run: Run) -> None:
    from openai import AsyncOpenAI

    messages: list[Any] = [{"role": "system", "content": system}, {"role": "user", "content": task}]
    async with AsyncOpenAI(base_url=llm.base_url, api_key=llm.api_key) as client:
        for _ in range(TURNS):
            reply = await client.chat.completions.create(model=llm.model, messages=messages, tools=SCHEMAS)
            message = reply.choices[0].message
            messages.append(message.model_dump(exclude_none=True))
            if not message.tool_calls:
                return
            for call in message.tool_calls:
                said = await called(call.function.name, call.function.arguments, run)
                if said is None:
                    return
                messages.append({"role": "tool", "tool_call_id": call.id, "content": said})


async def chat_streamed(llm: LLM, system: str, task: str, run: Run) -> None:
    from openai import AsyncOpenAI, LengthFinishReasonError

    messages: list[Any] = [{"role": "system", "content": system}, {"role": "user", "content": task}]
    async with AsyncOpenAI(base_url=llm.base_url, api_key=llm.api_key) as client:
        for _ in range(TURNS):
            asked: Any = {"model": llm.model, "messages": messages, "tools": SCHEMAS}
            try:
                async with client.chat.completions.stream(**asked) as stream:
                    message = (await stream.get_final_completion()).choices[0].message
            except LengthFinishReasonError:
                return
            messages.append(message.to_dict())
            if not message.tool_calls:
                return
            for call in message.tool_calls:
                said = await called(call.function.name, call.function.arguments, run)
                if said is None:
                    return
                messages.append({"role": "tool", "tool_call_id": call.id, "content": said})


async def responses(llm: LLM, system: str, task: str, run: Run) -> None:
    from openai import AsyncOpenAI

    items: list[Any] = [{"role": "user", "content": task}]
    tools: Any = [{"type": "function", **function} for function in FUNCTIONS]
    async with AsyncOpenAI(base_url=llm.base_url, api_key=llm.api_key) as client:
        for _ in range(TURNS):
            reply = await client.responses.create(model=llm.model, instructions=system, input=items, tools=tools)
            items += [item.to_dict() for item in reply.output]
            calls = [item for item in reply.output if item.type == "function_call"]
            if not calls:
                return
            for call in calls:
                said = await called(call.name, call.arguments, run)
                if said is None:
                    return
                items.append({"type": "function_call_output", "call_id": call.call_id, "output": said})


async def anthropic_streamed(llm: LLM, system: str, task: str, run: Run) -> None:
    from anthropic import AsyncAnthropic

    messages: list[Any] = [{"role": "user", "content": task}]
    tools = [
        {"name": one["name"], "description": one["description"], "input_schema": one["parameters"]} for one in FUNCTIONS
    ]
    async with AsyncAnthropic(base_url=llm.anthropic_url, api_key=llm.api_key) as client:
        for _ in range(TURNS):
            asked: Any = {"model": llm.model, "system": system, "messages": messages, "tools": tools}
            async with client.messages.stream(**asked, max_tokens=48) as stream:
                message = await stream.get_final_message()
            messages.append({"role": "assistant", "content": [block.to_dict() for block in message.content]})
            calls = [block for block in message.content if block.type == "tool_use"]
            if not calls:
                return
            results = []
            for call in calls:
                said = await called(call.name, call.input, run)
                if said is None:
                    return
                results.append({"type": "tool_result", "tool_use_id": call.id, "content": said})
            messages.append({"role": "user", "content": results})


async def langgraph(llm: LLM, system: str, task: str, run: Run) -> None:
    from langchain_core.tools import StructuredTool
    from langchain_openai import ChatOpenAI
    from langgraph.errors import GraphRecursionError
    from langgraph.prebuilt import create_react_agent

    tools = [
        StructuredTool(
            name=one["name"],
            description=one["description"],
            args_schema=one["parameters"],
            coroutine=work,
            return_direct=one["name"] == "submit",
        )
        for one, work in callables(run)
    ]
    model = ChatOpenAI(base_url=llm.base_url, api_key=llm.api_key, model=llm.model)  # type: ignore[arg-type]
    agent = create_react_agent(model, tools, prompt=system)
    with contextlib.suppress(GraphRecursionError):
        await agent.ainvoke({"messages": [{"role": "user", "content": task}]}, {"recursion_limit": 2 * TURNS})


async def pydantic_ai(llm: LLM, system: str, task: str, run: Run) -> None:
    from pydantic_ai import Agent, Tool, UnexpectedModelBehavior, UsageLimitExceeded, UsageLimits
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    tools = [Tool.from_schema(work, one["name"], one["description"], one["parameters"]) for one, work in callables(run)]
    # Schemas stay as they are told: the smallest of models knows no others.
    profile: Any = {"json_schema_transformer": None}
    provider = OpenAIProvider(base_url=llm.base_url, api_key=llm.api_key)
    model = OpenAIChatModel(llm.model, provider=provider, profile=profile)
    agent = Agent(model, tools=tools, system_prompt=system)
    with contextlib.suppress(UsageLimitExceeded, UnexpectedModelBehavior):
        await agent.run(task, usage_limits=UsageLimits(request_limit=TURNS))


async def openai_agents(llm: LLM, system: str, task: str, run: Run) -> None:
    from agents import Agent, FunctionTool, ModelBehaviorError, OpenAIChatCompletionsModel, RunConfig, Runner
    from agents.agent import StopAtTools
    from agents.exceptions import MaxTurnsExceeded
    from openai import AsyncOpenAI

    async def terminal(_: Any, arguments: str) -> str | None:
        return await called("terminal", arguments, run)

    async def submit(_: Any, arguments: str) -> str:
        return "submitted"

    tools = [
        FunctionTool(one["name"], one["description"], one["parameters"], work, strict_json_schema=False)
        for one, work in zip(FUNCTIONS, (terminal, submit), strict=True)
    ]
    async with AsyncOpenAI(base_url=llm.base_url, api_key=llm.api_key) as client:
        model = OpenAIChatCompletionsModel(model=llm.model, openai_client=client)
        stops = StopAtTools(stop_at_tool_names=["submit"])
        agent = Agent(name="worker", instructions=system, model=model, tools=tools, tool_use_behavior=stops)  # type: ignore[arg-type]
        with contextlib.suppress(MaxTurnsExceeded, ModelBehaviorError):
            await Runner.run(agent, task, max_turns=TURNS, run_config=RunConfig(tracing_disabled=True))


async def smolagents(llm: LLM, system: str, task: str, run: Run) -> None:
    """Its history is written anew each turn, and there is no tool to submit with."""
    from smolagents import ActionStep, AgentError, OpenAIServerModel, Tool, ToolCallingAgent

    loop = asyncio.get_running_loop()

    class Terminal(Tool):  # type: ignore[misc]
        name, description, output_type = "terminal", FUNCTIONS[0]["description"], "string"
        inputs: ClassVar = {"command": {"type": "string", "description": "one or more lines of shell."}}

        def forward(self, command: str) -> str:
            said = asyncio.run_coroutine_threadsafe(called("terminal", {"command": command}, run), loop)
            return said.result() or ""

    def work() -> None:
        model = OpenAIServerModel(model_id=llm.model, api_base=llm.base_url, api_key=llm.api_key)
        agent = ToolCallingAgent(tools=[Terminal()], model=model, instructions=system, verbosity_level=0)
        agent.prompt_templates["system_prompt"] = system
        with contextlib.suppress(AgentError):
            # Behind the last step it would ask for a summary.
            steps = (step for step in agent.run(task, stream=True) if isinstance(step, ActionStep))
            for _ in islice(steps, TURNS):
                pass

    await asyncio.to_thread(work)
