"""Which files outside of the working directory are judged because the tests name them."""

from harbor_samples import make_task
from stopwatch import Stopwatch

from envs.tasks.harbor import load_task
from envs.tasks.named_paths import MOST, named_paths


def named(tmp_path, text, file="test_outputs.py"):
    (tmp_path / file).write_text(text)
    return named_paths([tmp_path])


def test_paths_that_tests_name_are_found(tmp_path):
    text = """
    Path("/etc/nginx/nginx.conf").read_text(); os.listdir('/var/www/html'); open("/data")
    subprocess.run("cat /srv/a/b.txt > /dev/null", shell=True)  # see /etc/nginx/nginx.conf.
    """
    assert named(tmp_path, text) == ("/etc/nginx/nginx.conf", "/var/www/html", "/data", "/srv/a/b.txt")


def test_paths_below_home_are_roots(tmp_path):
    text = """
    key = Path.home() / ".ssh" / "id_rsa"
    assert (pathlib.Path.home() / "notes/a.txt").exists() and "a~/not" and Path.home()
    os.path.expanduser("~/.netrc"); subprocess.run("ls $HOME/x ${HOME}/y", shell=True)
    """
    assert named(tmp_path, text) == (*("/root/.ssh/id_rsa", "/root/notes/a.txt", "/root/.netrc", "/root/x", "/root/y"),)


def test_home_is_that_of_the_tests_user(tmp_path):
    for toml, home in (
        ("", "/home/me"),
        ('[verifier]\nuser = "root"\n', "/root"),
        ('[verifier]\nuser = "it"\n', "/home/it"),
    ):
        directory = make_task(tmp_path, toml, name=home.replace("/", "-"))
        (directory / "environment/Dockerfile").write_text("FROM x AS a\nUSER me:me\nFROM a\nWORKDIR /app\n")
        (directory / "tests/test.sh").write_text("grep x ~/.netrc\n")
        assert load_task(directory).hidden.graded == (f"{home}/.netrc",)


def test_what_every_machine_has_is_left_out(tmp_path):
    text = (
        '#!/usr/bin/env python3\n"/tmp" "/etc" "/bin/sh" "/usr/bin/gcc" "/proc/1" "/tests/x" "/logs/verifier/r" "/"\n'
    )
    text += (
        '"https://host/path/x" "a/b" "$UNKNOWN/x" f"{root}/z" "../up"\n. /root/.local/bin/env $HOME/.local/bin/env\n'
    )
    assert named(tmp_path, text, "test.sh") == ()


def test_what_lies_in_a_path_that_is_named_comes_with_it(tmp_path):
    assert named(tmp_path, '"/opt/tool/a" "/opt/tool" "/opt/toolbox"') == ("/opt/tool", "/opt/toolbox")


def test_tests_that_name_very_many_name_examples(tmp_path):
    text = "".join(f'client.get("/users/{number}")\n' for number in range(MOST + 1))
    assert named(tmp_path, text + 'run(["git", "log"])') == (".git",)


def test_very_many_names_cost_no_more_each(tmp_path):
    text = "".join(f'"/data/{number}/a" ' for number in range(20_000)) + '"/srv" "/srv/a"'
    watch = Stopwatch()
    assert named(tmp_path, text) == ()
    assert watch.seconds < 5


def test_git_is_judged_where_tests_ask_it(tmp_path):
    assert named(tmp_path, "git -C /app rev-parse HEAD") == ("/app", ".git")
    assert named(tmp_path, 'assert git("log", "--format=%s") == "first"') == (".git",)
    assert named(tmp_path, "repo = git.Repo(path)") == (".git",)
    assert named(tmp_path, "pip install git+https://x/y.git") == ()


def test_a_tasks_own_list_comes_first(tmp_path):
    directory = make_task(tmp_path, "[metadata]\ngraded_paths = []\n")
    (directory / "tests/test_it.py").write_text('open("/etc/app.conf")')
    assert load_task(directory).hidden.graded == ()
    (directory / "task.toml").write_text("")
    assert load_task(directory).hidden.graded == ("/etc/app.conf",)
    (directory / "tests/tests.json").write_text("{}")  # a repository's tests
    assert load_task(directory).hidden.graded == ()
