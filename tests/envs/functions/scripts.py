"""Agents as their makers' pages show them, each with a calculator: only the address is ours."""

import json

from tools import Tool, calculator

QUESTION = "What is 6 * 7? Use the calculator."
SCHEMA = Tool.of(calculator).schema
FUNCTION = SCHEMA["function"]


def reasons(prompt):
    """The model: calls the calculator, then answers as the agent wants it."""
    if "42" not in prompt.rsplit("6 * 7", 1)[1]:
        name, arguments = "calculator", {"expression": "6*7"}
    elif '"final_answer"' in prompt:
        name, arguments = "final_answer", {"answer": "42"}
    else:
        return "It is 42."
    return f"<tool_call>{json.dumps({'name': name, 'arguments': arguments})}</tool_call>"


async def compute(arguments):
    return await calculator(**(json.loads(arguments) if isinstance(arguments, str) else arguments))


async def chat(llm):
    from openai import AsyncOpenAI

    messages = [{"role": "user", "content": QUESTION}]
    async with AsyncOpenAI(base_url=llm.base_url, api_key=llm.api_key) as client:
        while True:
            reply = await client.chat.completions.create(model=llm.model, messages=messages, tools=[SCHEMA])
            message = reply.choices[0].message
            messages.append(message.model_dump(exclude_none=True))
            if not message.tool_calls:
                return message.content
            for call in message.tool_calls:
                content = await compute(call.function.arguments)
                messages.append({"role": "tool", "tool_call_id": call.id, "content": content})


async def chat_streamed(llm):
    from openai import AsyncOpenAI

    messages = [{"role": "user", "content": QUESTION}]
    async with AsyncOpenAI(base_url=llm.base_url, api_key=llm.api_key) as client:
        while True:
            options = {"model": llm.model, "messages": messages, "tools": [SCHEMA]}
            async with client.chat.completions.stream(**options) as stream:
                message = (await stream.get_final_completion()).choices[0].message
            messages.append(message.to_dict())
            if not message.tool_calls:
                return message.content
            for call in message.tool_calls:
                content = await compute(call.function.arguments)
                messages.append({"role": "tool", "tool_call_id": call.id, "content": content})


async def responses(llm):
    from openai import AsyncOpenAI

    items = [{"role": "user", "content": QUESTION}]
    tools = [{"type": "function", **FUNCTION}]
    async with AsyncOpenAI(base_url=llm.base_url, api_key=llm.api_key) as client:
        while True:
            reply = await client.responses.create(model=llm.model, input=items, tools=tools)
            items += [item.to_dict() for item in reply.output]
            calls = [item for item in reply.output if item.type == "function_call"]
            if not calls:
                return reply.output_text
            for call in calls:
                output = await compute(call.arguments)
                items.append({"type": "function_call_output", "call_id": call.call_id, "output": output})


async def anthropic_streamed(llm):
    from anthropic import AsyncAnthropic

    messages = [{"role": "user", "content": QUESTION}]
    schema = {"name": FUNCTION["name"], "description": "", "input_schema": FUNCTION["parameters"]}
    async with AsyncAnthropic(base_url=llm.anthropic_url, api_key=llm.api_key) as client:
        while True:
            options = {"model": llm.model, "messages": messages, "tools": [schema], "max_tokens": 200}
            async with client.messages.stream(**options) as stream:
                message = await stream.get_final_message()
            messages.append({"role": "assistant", "content": [block.to_dict() for block in message.content]})
            calls = [block for block in message.content if block.type == "tool_use"]
            if not calls:
                return message.content[-1].text
            results = [
                {"type": "tool_result", "tool_use_id": call.id, "content": await compute(call.input)} for call in calls
            ]
            messages.append({"role": "user", "content": results})


async def langgraph(llm):
    from langchain_openai import ChatOpenAI
    from langgraph.prebuilt import create_react_agent

    model = ChatOpenAI(base_url=llm.base_url, api_key=llm.api_key, model=llm.model)
    agent = create_react_agent(model, [calculator])
    told = await agent.ainvoke({"messages": [{"role": "user", "content": QUESTION}]})
    return told["messages"][-1].content


async def pydantic_ai(llm):
    from pydantic_ai import Agent
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    model = OpenAIChatModel(llm.model, provider=OpenAIProvider(base_url=llm.base_url, api_key=llm.api_key))
    return (await Agent(model, tools=[calculator]).run(QUESTION)).output


async def openai_agents(llm):
    from agents import Agent, OpenAIChatCompletionsModel, RunConfig, Runner, function_tool
    from openai import AsyncOpenAI

    async with AsyncOpenAI(base_url=llm.base_url, api_key=llm.api_key) as client:
        model = OpenAIChatCompletionsModel(model=llm.model, openai_client=client)
        agent = Agent(name="adder", model=model, tools=[function_tool(calculator)])
        return (await Runner.run(agent, QUESTION, run_config=RunConfig(tracing_disabled=True))).final_output


def smolagents(llm):
    import asyncio

    from smolagents import OpenAIServerModel, ToolCallingAgent, tool

    @tool
    def calculator(expression: str) -> str:
        """Compute a number.

        Args:
            expression: what to compute.
        """
        return asyncio.run(compute({"expression": expression}))

    model = OpenAIServerModel(model_id=llm.model, api_base=llm.base_url, api_key=llm.api_key)
    return ToolCallingAgent(tools=[calculator], model=model, verbosity_level=0).run(QUESTION)
