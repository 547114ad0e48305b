"""The parts of an evaluation that several processes made are one."""

from dataclasses import replace

import orjson
import pytest

from envs.records.comparison import NoEvaluation, read_rates
from envs.records.joining import Part, join, main
from envs.records.stats import summarise

REWARDS = {"a": [1.0, 0.0], "b": [1.0, 1.0], "c": [0.0, 0.5], "d": [], "e": [1.0, 0.0]}


def evaluation(rewards, shard, temperature=0.0):
    made = sum(map(len, rewards.values()))
    counts = {"tasks": len(rewards), "samples_each": 2, "made": made, "missing": 2 * len(rewards) - made}
    about = {"models": ["m"], "sampling": {"eval_temperature": temperature}, "options": {"shard": shard, "tags": []}}
    return summarise(rewards, (1, 2), about={**about, "samples": counts, "step": 0})


@pytest.fixture
def written(tmp_path):
    """Writes the parts with these tasks. Returns their directories."""

    def written(*names, of=None, **options):
        found = []
        for number, wanted in enumerate(names, 1):
            folder = tmp_path / str(number)
            folder.mkdir()
            rewards = {name: REWARDS[name] for name in wanted}
            summary = evaluation(rewards, f"{number}/{of or len(names)}", **options)
            (folder / "eval-0.json").write_bytes(orjson.dumps(summary.to_json()))
            found.append(folder)
        return found

    return written


def test_parts_together_are_what_one_process_had_found(written, tmp_path, capsys):
    out = tmp_path / "joined/eval-0.json"
    assert main([str(out), *map(str, written("ab", "cd", "e"))]) == 0
    assert orjson.loads(out.read_bytes()) == orjson.loads(orjson.dumps(evaluation(REWARDS, "1/1").to_json()))
    assert read_rates(out).samples == 8
    assert "4 tasks, 8 samples" in capsys.readouterr().out


def test_the_agents_of_parts_are_joined_each_for_itself(written, tmp_path):
    def mixed(rewards, shard):
        agents = {
            name: summarise({task: found[at:] for task, found in rewards.items()}, (1,)) for at, name in enumerate("pq")
        }
        return replace(evaluation(rewards, shard), agents=agents)

    folders = written("ab", "ce")
    for number, (folder, tasks) in enumerate(zip(folders, ("ab", "ce"), strict=True), 1):
        part = mixed({name: REWARDS[name] for name in tasks}, f"{number}/2")
        (folder / "eval-0.json").write_bytes(orjson.dumps(part.to_json()))
    whole = mixed({name: REWARDS[name] for name in "abce"}, "1/1").to_json()
    joined = join([Part.read(path / "eval-0.json") for path in folders]).to_json()
    assert joined["agents"] == whole["agents"] and list(joined["agents"]) == ["p", "q"]


def test_a_part_without_a_sample_takes_no_figure_from_the_others(written):
    summary = join([Part.read(path / "eval-0.json") for path in written("ab", "d", "")])
    assert summary.pass_at.keys() == {1, 2}
    assert summary.unsampled == ("d",)


def test_what_is_no_whole_is_refused(written, tmp_path):
    parts = [Part.read(path / "eval-0.json") for path in written("ab", "cd", of=2)]
    for some, what in [
        (parts[:1], "these are the parts 1/2; give each of 1/1 to 1/1 once"),
        ([parts[0], parts[0]], "these are the parts 1/2, 1/2"),
        ([parts[0], replace(parts[1], figures=parts[0].figures)], "tasks are in several parts, such as a"),
        ([parts[0], replace(parts[1], same={"sampling": {"top_p": 1}})], "1/2 and 2/2 differ in .*sampling"),
    ]:
        with pytest.raises(NoEvaluation, match=what):
            join(some)


def test_a_directory_without_an_evaluation_is_named(tmp_path, capsys):
    assert main([str(tmp_path / "out.json"), str(tmp_path / "nothing")]) == 2
    said = capsys.readouterr().err
    assert "nothing/eval-0.json is no evaluation of a part of the tasks" in said and "--env.shard 1/2" in said


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (b"", "line 1 is no JSON"),
        (b"[]", "its values are others"),
        (b"{}", "it has no '(about|tasks)'"),
        (b'{"tasks": [{}], "about": {"options": {"shard": "1/2"}}}', "its values are others|it has no 'task_id'"),
        (b'{"tasks": [], "about": 1, "unsampled": [], "pass_at": {}}', "its values are others"),
        (
            b'{"tasks": [], "about": {"options": {"shard": 1}, "samples": {}, "sampling": 1}, "unsampled": [], '
            b'"pass_at": {}, "agents": [1]}',
            "its values are others|it has no 'tasks'",
        ),
    ],
)
def test_a_foreign_file_is_named_in_our_words(tmp_path, text, why):
    (tmp_path / "eval-0.json").write_bytes(text)
    for read in (Part.read, read_rates):
        with pytest.raises(NoEvaluation, match=rf"eval-0\.json is no .* \(({why})\); "):
            read(tmp_path / "eval-0.json")
