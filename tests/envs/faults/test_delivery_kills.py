"""Our process is killed again and again while it delivers: each row reaches the trainer once."""

import asyncio
import os
import signal
import sys

import pytest
from kills import HERE, SIZE, Trainer, check
from programs import Program
from scripted_engine import ScriptedEngine
from sums import right


@pytest.fixture
def engine(smollm2_tokenizer, tokenizer_folder):
    with ScriptedEngine(right, smollm2_tokenizer, root=tokenizer_folder, delay_s=0.05) as engine:
        yield engine


async def test_kills_between_the_storing_and_the_confirmation_cost_no_row_and_double_none(engine, run_api, tmp_path):
    await check(engine, run_api, tmp_path, 4)


@pytest.mark.slow
async def test_kills_cost_no_row_of_a_function_and_double_none(engine, run_api, tmp_path):
    await check(engine, run_api, tmp_path, 6, program="sums_function.py")


@pytest.mark.slow
@pytest.mark.timeout(900)
async def test_twenty_kills_cost_no_row_and_double_none(engine, run_api, tmp_path):
    await check(engine, run_api, tmp_path, 20)


async def test_while_we_are_suspended_the_api_restarts_and_another_takes_our_number(engine, run_api, tmp_path):
    """SIGSTOP, another API on the same port, another environment, SIGCONT."""
    command = [
        *(HERE / "sums_program.py", "serve", f"--openai.base_url={engine.url}", f"--env.run_dir={tmp_path / 'run'}"),
        *(f"--env.rollout_server_url={run_api.url}", f"--env.group_size={SIZE}", "--env.equal_rewards=send"),
    ]
    paths = os.pathsep.join([str(HERE), str(HERE.parent), *sys.path])
    program = Program(command, stdout=tmp_path / "log", env={**os.environ, "PYTHONPATH": paths})
    trainer = Trainer(run_api.url)
    async with trainer.consumer:
        pulling = asyncio.create_task(trainer.pull())
        await trainer.gets(2, program)
        program.send_signal(signal.SIGSTOP)
        run_api.stop()
        run_api.start()
        other = {"max_token_length": 4096, "desired_name": "other", "weight": 1.0, "group_size": SIZE}
        answer = {"status": ""}
        async with asyncio.timeout(120):
            while answer["status"] != "success":
                await asyncio.sleep(0.05)
                answer = await trainer.consumer._ask("POST", "/register-env", json=other)
        assert answer["env_id"] == 0
        program.send_signal(signal.SIGCONT)
        await trainer.gets(6, program)
        taken = await trainer.consumer._ask("GET", "/latest_example")
        program.send_signal(signal.SIGTERM)
        await asyncio.to_thread(program.wait, 30)
        pulling.cancel()
        await asyncio.gather(pulling, return_exceptions=True)
    assert taken["env_id"] == 1, "our rows carry our own number"
    assert set(trainer.rows.values()) == {1}
