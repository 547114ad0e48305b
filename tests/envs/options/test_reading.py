"""What a user may get wrong, by class: each is refused at once with its remedy and status 2, or followed."""

from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, get_args

import atroposlib
import pytest
from pydantic import BaseModel
from stopwatch import Stopwatch
from sums import Sums

import envs
from envs.cli.program import COMMANDS, Program, doctor, main, parse
from envs.config import AgentEnvConfig
from envs.options import EngineConfig, Options, UsageError
from envs.options.reading import Option, options_of, read_options
from envs.swe.config import SWEEnvConfig
from envs.swe.program import PROGRAM

SUMS = Program.of(Sums, "python sums.py")


def options(*argv):
    return read_options(SWEEnvConfig, argv)


def refused(*argv, command="serve"):
    """The lines with which the options are refused, the first and the last left out."""
    with pytest.raises(UsageError) as caught:
        parse(PROGRAM, command, argv)
    return str(caught.value).splitlines()[1:]


# Values


@pytest.mark.parametrize(
    ("given", "read"),
    [
        (["enable_thinking=false"], {"enable_thinking": False}),
        (["a=1,b=1e-5,c=null,d=yes,e=text"], {"a": 1, "b": 1e-5, "c": None, "d": True, "e": "text"}),
        (["a=[1, false],b={x: [2]}"], {"a": [1, False], "b": {"x": [2]}}),
        (["a.b=false", "a.c=2"], {"a": {"b": False, "c": 2}}),
        (['{"a": false, "b": {"c": 1e-5}}'], {"a": False, "b": {"c": 1e-5}}),
        (['quoted="false"'], {"quoted": "false"}),
    ],
)
def test_variables_are_what_they_are_in_yaml(given, read):
    words = [word for value in given for word in ("--env.chat_template_kwargs", value)]
    assert options(*words).env.chat_template_kwargs == read


def test_a_variable_may_be_named_like_an_option():
    read = options("--env.chat_template_kwargs.enable_thinking", "false", "--env.chat_template_kwargs.a.b=[1]")
    assert read.env.chat_template_kwargs == {"enable_thinking": False, "a": {"b": [1]}}


@pytest.mark.parametrize("given", [["a,b"], ["a", "b"], ['["a", "b"]'], ["[a, b]"]])
def test_lists_are_read_in_each_of_their_forms(given):
    assert options(*[word for value in given for word in ("--env.tags", value)]).env.tags == ["a", "b"]


def test_text_stays_text_where_text_is_expected():
    assert options("--env.system_prompt", "false", "--env.eval_tasks=1e-5").env.system_prompt == "false"


@pytest.mark.parametrize(
    "given",
    [
        ["--env.pods.node_selector", "gpu=true,pool=1,at=12:30"],
        ["--env.pods.node_selector.gpu=true", "--env.pods.node_selector.pool=1", "--env.pods.node_selector.at=12:30"],
        ["--env.pods", "node_selector.gpu=true,node_selector.pool=1,node_selector.at='12:30'"],
        ["--env.pods", '{"node_selector": {"gpu": "true", "pool": "1", "at": "12:30"}}'],
    ],
)
def test_a_mapping_of_texts_has_texts(given):
    read = options(*given, "--env.sandbox=kubernetes").env.pods
    assert read.node_selector == {"gpu": "true", "pool": "1", "at": "12:30"}


def test_a_union_takes_the_type_that_is_meant():
    class Own(AgentEnvConfig):
        limit: int | str = 3
        level: Literal[1, 2] = 1
        names: str | list[str] = ""

    read = read_options(Own, ["--env.limit", "4", "--env.level", "2", "--env.names", "[a,b]"]).env
    assert (read.limit, read.level, read.names) == (4, 2, ["a", "b"])


# The file and the command line


def file(tmp_path, text):
    path = tmp_path / "options.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return str(path)


SERVERS = "openai:\n  - {base_url: http://a/v1, model_name: m}\n  - {base_url: http://b/v1, model_name: m}\n"


def test_the_command_line_counts_for_every_server_of_the_file(tmp_path):
    read = options("--config", file(tmp_path, SERVERS), "--openai.timeout", "7", "--openai.model_name=n")
    assert [(e.base_url, e.model_name, e.timeout) for e in read.engines] == [
        ("http://a/v1", "n", 7),
        ("http://b/v1", "n", 7),
    ]


def test_urls_on_the_command_line_replace_those_of_the_file_and_the_rest_stays(tmp_path):
    read = options("--config", file(tmp_path, SERVERS), "--openai.base_url", "http://c/v1,http://d/v1")
    assert [(e.base_url, e.model_name) for e in read.engines] == [("http://c/v1", "m"), ("http://d/v1", "m")]


def test_urls_on_the_command_line_are_refused_where_nobody_knows_which_server_is_meant(tmp_path):
    differ = SERVERS.replace("model_name: m}\n  -", "model_name: o}\n  -")
    (line,) = refused("--config", file(tmp_path, differ), "--openai.base_url", "http://c/v1")
    assert "--openai.base_url: the file lists servers that differ" in line


@pytest.mark.parametrize(
    "text",
    ["openai: [http://a/v1, http://b/v1]", "openai: {base_url: [http://a/v1, http://b/v1]}"],
)
def test_a_list_of_urls_is_a_list_of_servers(tmp_path, text):
    assert [e.base_url for e in options("--config", file(tmp_path, text)).engines] == ["http://a/v1", "http://b/v1"]


def test_the_command_line_wins_inside_of_a_mapping_and_the_rest_of_it_stays(tmp_path):
    text = (
        "env:\n  chat_template_kwargs: {a: 1, b: 1e-5}\n  workers: ray\n  ray: {workers: 2, rollouts: 1}\n  tags: [x]\n"
    )
    words = ["--env.chat_template_kwargs", "a=2", "--env.ray.rollouts=3", "--env.tags=y"]
    env = options("--config", file(tmp_path, text), *words).env
    assert env.chat_template_kwargs == {"a": 2, "b": 1e-5}
    assert (env.ray.workers, env.ray.rollouts, env.tags) == (2, 3, ["y"])


def test_what_is_set_in_python_alone_is_refused_by_name(tmp_path):
    config = file(tmp_path, "env: {overtime_s: 3}\n")
    lines = refused("--config", config, "--env.task_failures", "4")
    assert len(lines) == 2
    assert all("is set only in Python" in line for line in lines)

    class Patient(SWEEnvConfig):
        overtime_s: float = 7200.0

    assert Patient().overtime_s == 7200.0


BOMB = "".join(f"{name}: &{name} [{', '.join([f'*{before}'] * 10)}]\n" for before, name in pairwise("abcdefghi"))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("env:\n  seed: 1\n  seed: 2\n", "'seed' is there twice"),
        ("env: {seed: 1}\nenv: {seed: 2}\n", "'env' is there twice"),
        ("env:\n  chat_template_kwargs: {1: a, 1: b}\n", "1 is there twice"),
        (b"env:\n  wandb_name: caf\xe9\n", "is not UTF-8; save the file as UTF-8"),
        ("- env\n", "expected a mapping with `env` and `openai`"),
        ("false", "expected a mapping with `env` and `openai`"),
        ("env: {seed: \n", "options.yaml"),
        ('{"env": {"seed": 1}, }}', "options.yaml"),
        ("\x00", "options.yaml"),
        ("[" * 5000, "options.yaml"),
        ("env: &e {chat_template_kwargs: *e}\n", "options.yaml: it holds itself"),
        ("a: &a [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]\n" + BOMB, "options.yaml: it holds itself, or more than 100000 values"),
        ("--env.seed: 1\n", "  --env.seed: there is no such option; did you mean --env.seed?"),
        ("env: 5\n", "--env: Input should be a valid dictionary"),
        ("openai: [3]\n", "--openai.0: Input should be a valid dictionary"),
        ("openai: []\n", "--openai: the file's list of servers is empty"),
        ("env: {shaping: {long_reply: 9}}\n", "--env.shaping: it was removed; use --env.reward"),
        ("evn: {}\n", "--evn: there is no such option; did you mean --env?"),
        ("env: {group_sise: 3}\n", "--env.group_sise: there is no such option; did you mean --env.group_size?"),
        ("openai: [{base_ulr: x}]\n", "--openai.0.base_ulr: there is no such option; did you mean --openai.base_url?"),
        ("env: {worker_timeout: 3}\n", "--env.worker_timeout: has no effect in this environment; remove it"),
        ("env: {tools: ['']}\n", "one of its items is empty"),
    ],
)
def test_a_file_that_can_not_be_meant_is_refused(tmp_path, text, said):
    assert said in "\n".join(refused("--config", file(tmp_path, text)))


def test_a_key_that_can_not_be_sent_is_refused_and_not_shown(tmp_path):
    text = file(tmp_path, "openai: {api_key: 'sk-secret schlüssel'}")
    for words in (["--config", text], ["--openai.api_key", "sk-secret key"]):
        (line,) = refused(*words)
        assert "--openai.api_key: no key has spaces" in line
        assert "secret" not in line
    assert options("--config", file(tmp_path, "openai:\n  api_key: |\n    sk-1\n")).engines[0].api_key == "sk-1"


def test_a_key_is_read_from_its_variable(monkeypatch):
    monkeypatch.setenv("SOME_KEY", "sk-1")
    engine = options("--openai.api_key_var", "SOME_KEY").engines[0]
    assert (engine.api_key, engine.api_key_var) == ("sk-1", "")  # so that other machines need no such variable
    assert "give --openai.api_key or" in refused("--openai.api_key_var=SOME_KEY", "--openai.api_key=sk-2")[0]
    monkeypatch.setenv("SOME_KEY", "sk secret")
    (line,) = refused("--openai.api_key_var=SOME_KEY")
    assert "no key has spaces" in line
    assert "secret" not in line
    monkeypatch.delenv("SOME_KEY")
    assert "api_key_var: the environment has no variable SOME_KEY" in refused("--openai.api_key_var=SOME_KEY")[0]


def test_the_home_directory_is_found_where_the_shell_leaves_its_sign(monkeypatch):
    monkeypatch.setenv("HOME", "/home/me")
    env = options("--env.run_dir=~/runs/a", "--env.difficulty_from=~/b,~/c", "--env.tokenizer_name=~/model").env
    assert (str(env.run_dir), env.tokenizer_name) == ("/home/me/runs/a", "/home/me/model")
    assert [str(path) for path in env.difficulty_from] == ["/home/me/b", "/home/me/c"]


@pytest.mark.parametrize(("text", "said"), [(None, "No such file"), ("{}", "it has no 'tasks'"), ("torn {", "line 1")])
def test_what_is_compared_with_is_read_at_the_start(tmp_path, text, said):
    path = tmp_path / "eval-0.json"
    if text is not None:
        path.write_text(text)
    (line,) = refused("--against", str(path), command="evaluate")
    assert f"--against: {path} is no file of an evaluation" in line
    assert said in line


def test_a_file_with_empty_sections_says_nothing(tmp_path):
    assert options("--config", file(tmp_path, "env:\nopenai:\n")).env == SWEEnvConfig()


# The command line

WRONG = [
    (["--env.group_sise=4"], "--env.group_sise: there is no such option; did you mean --env.group_size?"),
    (["--env.group-size", "4"], "--env.group-size: there is no such option; did you mean --env.group_size?"),
    (["--group_size", "4"], "--group_size: there is no such option; did you mean --env.group_size?"),
    (["--env.eval_attempts=4"], "did you mean --env.attempts or --env.eval_samples?"),
    (["--openai.model=x"], "did you mean --openai.model_name?"),
    (["--env.qqqqqq", "4"], "--env.qqqqqq: there is no such option"),
    (["--env.nope", "4"], "--env.nope: there is no such option\n"),
    (["--openai.healthcheck", "4"], "--openai.healthcheck: there is no such option"),
    (["stray"], "'stray' belongs to no option"),
    (["--env.shaping.long_reply=9"], "--env.shaping.long_reply: it was removed; use --env.reward (docs/reward.md)"),
    (["--env.curriculum", "true"], "--env.curriculum: it was removed; each task comes once an epoch (docs/options.md)"),
    (["--env.use_wandb"], "--env.use_wandb: it needs a value (true or false)"),
    (["--env.group_size", "--env.seed", "1"], "--env.group_size: it needs a value"),
    (["--config"], "--config: it needs a value"),
    (["--config", "a.yaml", "--config", "b.yaml"], '--config: it is given twice ("a.yaml", "b.yaml"); leave one out'),
    (["--env.seed=1", "--env.seed=2"], '--env.seed: it is given twice ("1", "2"); leave one out'),
    (["--env.chat_template_kwargs=a=1", "--env.chat_template_kwargs.a=2"], ".a: it is given twice (1, 2)"),
    (["--config", "/nonexistent"], "No such file or directory; give a YAML file that is there"),
    (["--env.total_steps=0"], "--env.total_steps: nothing would be done"),
    (["--env.rollout_server_url", "localhost:8000"], "--env.rollout_server_url: this is no URL of a server"),
    (["--openai.base_url", "localhost:9001/v1"], "--openai.base_url: this is no URL of a server"),
    (["--openai.base_url", "http://a:99999/v1"], "--openai.base_url: this is no URL (Port out of range"),
    (["--openai.base_url", "http://"], "--openai.base_url: this is no URL of a server"),
    (["--openai.server_type=openai"], "--openai: give --openai.base_url for --openai.server_type openai, such as"),
    (
        ["--openai.server_type=anthropic", "--openai.api_key=k"],
        "such as https://api.anthropic.com, and",
    ),
    (["--openai.base_url", ","], "--openai.base_url: it names no server"),
    (["--env.temperature", "nan"], "--env.temperature: Input should be a finite number"),
    (["--env.rollout_timeout_s", "inf"], "--env.rollout_timeout_s: Input should be a finite number"),
    (["--env.eval_ks="], "--env.eval_ks: List should have at least 1 item"),
    (["--env.eval_ks=0"], "--env.eval_ks.0: Input should be greater than or equal to 1"),
    (["--env.chat_template_kwargs", "enable_thinking"], "give it as name=value"),
    (["--env.chat_template_kwargs", '{"a": '], "--env.chat_template_kwargs: it can't be read"),
    (["--env.ensure_scores_are_not_same=false", "--env.equal_rewards=drop"], "leave one of them out"),
    (["--ENV.GROUP_SIZE=4"], "--ENV.GROUP_SIZE: there is no such option; did you mean --env.group_size?"),
    (["--env.max_steps=99999999999999999999"], "--env.max_steps: it is too large"),
    (["--env.rollout_timeout_s=1e300"], "--env.rollout_timeout_s: it is too large"),
    (["--env.chat_template_kwargs={a: &x [*x]}"], "--env.chat_template_kwargs: it can't be read: it holds itself"),
    (["--env.live=:8900"], "--env.live: every address is not this machine alone"),
    (["--env.run_dir=~nobody-here/run"], "--env.run_dir: Could not determine home directory"),
    (["--env.tools="], "--env.tools: List should have at least 1 item"),
    (["--env.run_dir=runs/\udcff"], "--env.run_dir: some of its bytes are not UTF-8"),
    (["--env.chat_template_kwargs=a=[\udcff]"], "--env.chat_template_kwargs: some of its bytes are not UTF-8"),
]


@pytest.mark.parametrize(("argv", "said"), WRONG, ids=[" ".join(argv) for argv, _ in WRONG])
@pytest.mark.parametrize("command", [*COMMANDS, "doctor"])
def test_a_mistake_is_refused_within_a_second_with_status_2(command, argv, said, capsys):
    watch = Stopwatch()
    status = doctor(PROGRAM, argv) if command == "doctor" else main(PROGRAM, command, argv)
    assert status == 2
    assert watch.seconds < 1
    err = capsys.readouterr().err
    assert said in err
    assert err.splitlines()[-1] == f"python -m envs.swe {command} --help explains them"
    assert len(err.splitlines()) < 8, "short"


def test_all_mistakes_are_told_at_once(tmp_path):
    config = file(tmp_path, "env: {group_sise: 4}\nopenai: {timeout: 0}\n")
    words = ["--env.max_steps=0", "--openai.base_ulr", "x", "--env.worker_timeout=3", "--env.seed", "--log_level=loud"]
    lines = refused("--config", config, *words)
    wanted = {"base_ulr", "seed", "worker_timeout", "group_sise", "max_steps", "timeout", "log_level"}
    assert sorted(line.split(":")[0].rpartition(".")[2].strip(" -") for line in lines) == sorted(wanted)


# All options


def every_option():
    known = {option.name: option for option in options_of(SWEEnvConfig)}
    models = {("env",): SWEEnvConfig, ("openai",): EngineConfig, (): Options}
    for option in known.values():
        if option.useless or option.path == ("config",) or is_model(option.kind):
            continue
        outer = option.path[:-1]
        kind = models.get(outer) or next(o.kind for o in known.values() if o.path == outer)
        yield option, kind.model_fields[option.path[-1]]


def is_model(kind):
    return isinstance(kind, type) and issubclass(kind, BaseModel)


def numbers():
    for option, info in every_option():
        if option.kind in (int, float) or get_args(option.kind) in ((int, type(None)), (float, type(None))):
            yield option, info


MAY_BE_NEGATIVE = {"--env.seed": "a seed", "--env.total_steps": "-1 is as many as the trainer takes"}


@pytest.mark.parametrize("option", [option for option, _ in numbers()], ids=lambda option: option.name)
def test_no_count_or_time_may_be_negative(option: Option):
    given = "-2" if option.name in MAY_BE_NEGATIVE else "-1"
    if option.name == "--env.seed":
        assert options(option.name, given).env.seed == -2
    else:
        assert any(f"{option.name}: Input should be greater than" in line for line in refused(option.name, given))


@pytest.mark.parametrize(
    ("option", "info"), [(o, i) for o, i in every_option() if o.kind is not bool], ids=lambda found: str(found)[:60]
)
def test_nothing_may_be_empty_that_has_a_value_by_default(option: Option, info: Any):
    if info.default in ("", [], {}) and info.default is not None:
        options(f"{option.name}=")
    else:
        assert refused(f"{option.name}="), option.name


def test_every_option_is_read_somewhere():
    root = Path(envs.__file__).parent.parent
    rooms = ("envs", "atropos_agent", "sandboxes/kubernetes", "sandboxes/e2b")
    ours = [path for name in rooms for path in (root / name).rglob("*.py")]
    ours = [path for path in ours if path.name not in ("config.py", "command.py") or "swe" in path.parts]
    said_here = {root / "envs/swe/config.py"}
    text = "\n".join(path.read_text() for path in ours if path not in said_here)
    text += (root / "envs/config.py").read_text().split('@model_validator(mode="after")')[1]
    text += (root / "envs/options/command.py").read_text().split('@model_validator(mode="after")', 1)[1]
    theirs = Path(atroposlib.__file__).parent / "envs/server_handling"
    text += "".join((theirs / name).read_text() for name in ("server_baseline.py", "openai_server.py"))
    for option, info in every_option():
        name = option.path[-1]
        assert info.description, f"{option.name} is not explained"
        read = [f"{place}.{name}" for place in ("config", "self", "options", "env")] + [
            f'getattr(self.config, "{name}"'
        ]
        read += ['f"eval_{name}"'] if name.removeprefix("eval_") in AgentEnvConfig().sampling() else []
        assert any(one in text for one in read), option.name


def test_no_key_is_in_a_message(tmp_path):
    twice = refused("--openai.api_key=sk-one", "--openai.api_key=sk-two")
    number = refused("--config", file(tmp_path, "env: {teacher: 'http://t/v1', teacher_key: 20240101}"))
    assert "--openai.api_key: it is given twice; leave one out" in "".join(twice)
    assert "--env.teacher_key: Input should be a valid string" in "".join(number)
    assert not [line for line in (*twice, *number) if "sk-" in line or "2024" in line]
