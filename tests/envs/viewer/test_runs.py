"""Which directories hold runs, and what is read of them."""

import pytest

from envs.runs.reader import NoRun, decoder
from envs.viewer.runs import ShownRun, open_runs, pair_of, run_directories


def test_a_directory_of_runs_stands_for_them_the_one_that_trains_first(run_dir, tmp_path):
    (tmp_path / "environment").symlink_to(run_dir)
    (tmp_path / "eval-000000").mkdir()
    (tmp_path / "eval-000000" / "rollouts.jsonl").touch()
    (tmp_path / "trainer").mkdir()
    found = run_directories([tmp_path])
    assert [path.name for path in found] == ["environment", "eval-000000"]
    assert run_directories([run_dir]) == [run_dir]


@pytest.mark.parametrize(
    ("paths", "names"),
    [
        (["a/one", "b/two"], ["one", "two"]),
        (["a/environment", "b/environment", "b/eval-0"], ["a", "b", "eval-0"]),
        (["a/x/run", "b/x/run"], ["a/x/run", "b/x/run"]),
        (["a/one", "a/one"], ["one", "one"]),
    ],
)
def test_runs_of_one_name_are_told_apart_by_where_they_are(tmp_path, paths, names):
    for path in paths:
        (tmp_path / path).mkdir(parents=True, exist_ok=True)
    assert [run.name for run in open_runs([tmp_path / path for path in paths])] == names


def test_runs_of_one_kind_are_compared_the_earlier_first(tmp_path):
    for name in ("environment", "eval-0", "eval-7", "eval-9"):
        (tmp_path / name).mkdir()
    (tmp_path / "environment" / "state.db").touch()
    runs = open_runs(sorted(tmp_path.iterdir()))
    assert pair_of(runs) == (1, 3), "the first evaluation and the last one"
    assert [pair_of(runs, number) for number in range(4)] == [(0, 1), (1, 2), (1, 2), (1, 3)]
    assert pair_of(runs[:2]) == (0, 1)


def test_evaluations_of_one_folder_are_compared_before_others(tmp_path):
    paths = [tmp_path / name for name in ("ours/eval-0", "ours/eval-1", "learn/eval-0", "learn/eval-9")]
    for path in paths:
        path.mkdir(parents=True)
    runs = open_runs(paths)
    assert [pair_of(runs), pair_of(runs, 0), pair_of(runs, 1)] == [(2, 3), (0, 1), (0, 1)]


def test_what_holds_no_run_is_named_with_what_would(tmp_path):
    with pytest.raises(NoRun, match=r"no state\.db and no rollouts\.jsonl"):
        run_directories([tmp_path])
    with pytest.raises(NoRun, match="is no directory"):
        run_directories([tmp_path / "nowhere"])


def test_a_run_that_learns_has_the_evaluations_beside_it(tmp_path):
    for name in ("environment", "trainer", "eval-000000"):
        (tmp_path / name).mkdir()
    (tmp_path / "environment" / "state.db").touch()
    for path in ("environment/eval-4.json", "eval-000000/eval-0.json"):
        (tmp_path / path).write_text('{"tasks": []}')
    assert [name for name, _ in ShownRun(tmp_path / "environment", None).evaluations()] == [
        "eval-000000",
        "eval-4",
    ]
    assert [name for name, _ in ShownRun(tmp_path / "eval-000000", None).evaluations()] == ["eval-0"]


def test_what_can_not_be_read_is_left_out(run_dir, tmp_path):
    for name in ("metrics.json", "run.json", "eval-0.json"):
        (tmp_path / name).write_bytes(b"torn {")
    (tmp_path / "quarantined.jsonl").write_bytes(b'{"task": "a"}\ntorn {\n{"task": "b"}\n')
    run = ShownRun(tmp_path, None)
    assert run.metrics() is None
    assert run.about() == {}
    (tmp_path / "run.json").write_text('{"id": "x", "starts": [{"options": 3}, {"arguments": ["serve"]}, 4]}')
    assert run.about() == {"id": "x", "starts": [{"arguments": ["serve"]}]}
    assert run.evaluations() == []
    assert [record["task"] for record in run.failures()] == ["b", "a"]
    assert ShownRun(run_dir, None).metrics().rollouts == 16


def test_tokens_are_text_where_the_runs_tokenizer_is_there(smollm2_tokenizer, tmp_path):
    path = tmp_path / "tokenizer.json"
    assert decoder(path) is None
    path.write_text(smollm2_tokenizer.backend_tokenizer.to_str())
    (end,) = smollm2_tokenizer.encode("<|im_end|>")
    assert decoder(path)(end) == "<|im_end|>"
    path.write_text("torn {")
    assert decoder(path) is None
