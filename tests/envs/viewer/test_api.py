"""The page's answers to programs: the same as the reader's, in bounded pages."""

import pytest

from envs.viewer.api import MOST


def ask(client, path, **query):
    answer = client.get(f"/api/{path}", params=query)
    assert answer.headers["content-type"] == "application/json"
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    return answer.status_code, answer.json()


def test_rollouts_are_given_a_page_at_a_time(client):
    status, first = ask(client, "rollouts", size=5, order="oldest", kind="training")
    assert (status, first["count"], first["next"], first["indexed"]) == (200, 14, 2, 1.0)
    _, last = ask(client, "rollouts", size=5, order="oldest", kind="training", page=3)
    assert [line["id"] for line in last["rollouts"]] == ["r-2-2", "r-2-3", "r-3-0", "r-3-1"]
    assert last["next"] is None
    line = first["rollouts"][0]
    whole = client.get(f"/0/rollouts/{line['place']}/raw").json()
    assert whole["session_id"] == line["id"]


def test_groups_tasks_and_figures_are_given_by_filter(client):
    _, groups = ask(client, "groups", state="equal")
    assert [(group["number"], group["rewards"]) for group in groups["groups"]] == [(1, [0.0] * 4)]
    _, tasks = ask(client, "tasks", kind="training", size=2)
    assert [line["task"] for line in tasks["tasks"]] == ["add-numbers", "parse-dates"]
    _, metrics = ask(client, "metrics", by="step", task="add-numbers", kind="training")
    assert [(line["step"], line["reward"]) for line in metrics["figures"]] == [(0, 0.5), (2, 0.75)]
    assert metrics["counters"]["rollouts"] == 16
    assert metrics["scalars"]["reward_mean"] == pytest.approx(6.5 / 16)
    assert ask(client, "resources")[1]["resources"] == []
    assert ask(client, "failures")[1]["failures"] == []


def test_no_answer_is_longer_than_the_most(client):
    assert len(ask(client, "rollouts", size=10**9)[1]["rollouts"]) <= MOST
    assert ask(client, "rollouts", size=0)[0] == 200


def test_several_runs_are_told_apart_by_their_numbers(client):
    assert [(run["run"], run["name"]) for run in ask(client, "runs")[1]["runs"]] == [
        (0, run["name"]) if run["run"] == 0 else (1, run["name"]) for run in ask(client, "runs")[1]["runs"]
    ]
    assert ask(client, "rollouts", run=1, q="long")[1]["run"] == 1


@pytest.mark.parametrize(
    ("path", "query", "status", "said"),
    [
        ("rollouts", {"tsk": "x"}, 400, "did you mean task"),
        ("rollouts", {"least": "much"}, 400, "no number"),
        ("rollouts", {"size": "-1"}, 400, "no number"),
        ("groups", {"least": "1"}, 400, "there is no filter 'least' here; there are state, task, resource"),
        ("metrics", {"by": "colour"}, 400, "not one of step, task"),
        ("tasks", {"kind": "x"}, 400, "not one of training, evaluation"),
        ("rollouts", {"run": "7"}, 404, "there is no run 7"),
        ("nothing", {}, 404, "nothing at this address"),
    ],
)
def test_what_can_not_be_answered_is_said_in_json(client, path, query, status, said):
    found, answer = ask(client, path, **query)
    assert found == status
    assert said in answer["error"]


def test_nothing_can_be_written(client):
    assert client.post("/api/rollouts").status_code == 405
