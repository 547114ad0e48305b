"""Functions as environments: a rollout is a call of one, and its return value is the reward.

    @rollout(tasks=[...])
    async def answers(task: Task, llm: LLM) -> float:
        client = AsyncOpenAI(base_url=llm.base_url, api_key=llm.api_key)
        ...

    if __name__ == "__main__":
        sys.exit(answers.main())      # serve, process, evaluate, doctor

Importing this takes no time; `envs.functions.running` runs agents without a trainer.
"""

from envs.functions.arguments import LLM, Hooks, Prompt, Turn
from envs.functions.decorator import Function, rollout, single_turn

__all__ = ["LLM", "Function", "Hooks", "Prompt", "Turn", "rollout", "single_turn"]
