"""The environment for mini-swe-agent."""

import pytest

pytest.importorskip("minisweagent")

from concurrent.futures import ThreadPoolExecutor

from minisweagent.environments import get_environment
from minisweagent.exceptions import Submitted

from sandboxes.adapters.mini_swe_agent import AtroposEnvironment

pytestmark = [pytest.mark.docker, pytest.mark.filterwarnings("default")]


@pytest.fixture
def environment(base_image):
    made = get_environment(
        {
            "environment_class": "sandboxes.adapters.mini_swe_agent.AtroposEnvironment",
            "image": base_image,
            "cwd": "/work",
            "env": {"COLOUR": "green"},
        }
    )
    assert isinstance(made, AtroposEnvironment)
    yield made
    made.cleanup()


def test_a_command_is_told_as_mini_swe_agent_wants_it(environment):
    found = environment.execute({"command": "pwd; echo $COLOUR; echo bad >&2; exit 3"})
    assert found == {"output": "/work\ngreen\nbad\n", "returncode": 3, "exception_info": ""}
    assert environment.execute({"command": "pwd"}, "/tmp")["output"] == "/tmp\n"


def test_files_stay_and_state_does_not(environment):
    environment.execute({"command": "cd /tmp; export A=b; touch here"})
    assert environment.execute({"command": "pwd; echo $A; ls /tmp"})["output"] == "/work\n\nhere\n"


def test_a_command_that_takes_too_long_is_a_failure_with_its_output(environment):
    found = environment.execute({"command": "echo begun; sleep 60"}, timeout=1)
    assert (found["output"], found["returncode"]) == ("begun\n", -1)
    assert found["extra"]["exception_type"] == "TimeoutError"


def test_what_is_submitted_ends_the_run(environment):
    with pytest.raises(Submitted) as caught:
        environment.execute({"command": "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT; echo the; echo patch"})
    assert caught.value.messages[0]["extra"] == {"exit_status": "Submitted", "submission": "the\npatch\n"}
    command = "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT; exit 1"
    assert environment.execute({"command": command})["returncode"] == 1, "it failed"


def test_templates_and_records_know_it(environment):
    known = environment.get_template_vars(more=1)
    assert (known["system"], known["cwd"], known["more"]) == ("Linux", "/work", 1)
    kind = environment.serialize()["info"]["config"]["environment_type"]
    assert kind == "sandboxes.adapters.mini_swe_agent.AtroposEnvironment"


def test_many_threads_have_one_each(base_image):
    def one(number):
        made = AtroposEnvironment(image=base_image, cwd="/work")
        made.execute({"command": f"echo {number} >n"})
        said = made.execute({"command": "cat n"})["output"]
        made.cleanup()
        return said

    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(one, range(16))) == [f"{number}\n" for number in range(16)]


def test_one_that_was_cleaned_up_answers_with_a_failure(base_image):
    made = AtroposEnvironment(image=base_image)
    made.cleanup()
    made.cleanup()
    assert made.execute({"command": "true"})["returncode"] == -1
