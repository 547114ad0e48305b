"""Tasks in the shapes in which they are published: terminal-bench 2, sets for Harbor, Harbor's own examples.

Each content comes in each shape. The shapes are those of public repositories, without their texts.
"""

# ruff: noqa: E501 - texts of files
from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

Files = Mapping[str, str]


@dataclass(frozen=True)
class Content:
    """What is to be done. image: lines of its Dockerfile. test: a module for pytest. artifacts: what it looks at."""

    name: str
    image: str
    solve: str
    test: str
    artifacts: tuple[str, ...]


CONTENTS = (
    Content(
        "greeting",
        "",
        "echo 'Hello, world!' > /app/hello.txt",
        "from pathlib import Path\n\n\ndef test_greeting():\n"
        "    assert Path('/app/hello.txt').read_text() == 'Hello, world!\\n'\n",
        ("/app/hello.txt",),
    ),
    Content(
        "fix-median",
        "RUN printf 'def median(v):\\n    return v[len(v) // 2]\\n' > stats.py\n",
        "printf 'def median(v):\\n    return sorted(v)[len(v) // 2]\\n' > /app/stats.py",
        "import sys\n\nsys.path.insert(0, '/app')\n\n\ndef test_sorted():\n    import stats\n\n"
        "    assert stats.median([1, 2, 3]) == 2\n\n\ndef test_unsorted():\n    import stats\n\n"
        "    assert stats.median([3, 1, 2]) == 2\n",
        ("/app",),
    ),
    Content(
        "csv-to-json",
        "RUN printf 'name,age\\nann,3\\nbob,4\\n' > people.csv\n",
        "python3 -c \"import csv, json; json.dump(list(csv.DictReader(open('/app/people.csv'))), "
        "open('/app/people.json', 'w'))\"",
        "import json\n\n\ndef test_rows():\n    with open('/app/people.json') as file:\n        rows = json.load(file)\n"
        "    assert rows == [{'name': 'ann', 'age': '3'}, {'name': 'bob', 'age': '4'}]\n",
        ("/app/people.json",),
    ),
    Content(
        "server-config",
        "RUN mkdir -p /etc/server && echo 'port = 80' > /etc/server/server.conf\n",
        "sed -i 's/80/8080/' /etc/server/server.conf; mkdir -p /var/www/site; echo hi > /var/www/site/index.html",
        "import os\n\n\ndef test_port():\n    with open('/etc/server/server.conf') as file:\n"
        "        assert file.read() == 'port = 8080\\n'\n\n\ndef test_page():\n"
        "    assert os.listdir('/var/www/site') == ['index.html']\n",
        ("/etc/server/server.conf", "/var/www/site"),
    ),
    Content(
        "two-commits",
        "RUN git init -q && git -c user.name=a -c user.email=a@b commit -q --allow-empty -m first\n",
        "cd /app && echo x > x && git add x && git -c user.name=a -c user.email=a@b commit -q -m second",
        "import subprocess\n\n\ndef test_log():\n"
        "    log = subprocess.run(['git', '-C', '/app', 'log', '--format=%s'], capture_output=True, text=True)\n"
        "    assert log.stdout == 'second\\nfirst\\n'\n",
        ("/app/.git",),
    ),
    Content(
        "secret-and-script",
        "",
        "mkdir -p /app/out && cd /app/out && echo key > secret && chmod 600 secret "
        "&& printf '#!/bin/sh\\necho $((6 * 7))\\n' > run.sh && chmod 755 run.sh",
        "import os\nimport subprocess\n\n\ndef test_secret():\n    assert os.stat('/app/out/secret').st_mode & 0o777 == 0o600\n"
        "    with open('/app/out/secret') as file:\n        assert file.read() == 'key\\n'\n\n\ndef test_script():\n"
        "    assert subprocess.check_output(['/app/out/run.sh'], text=True) == '42\\n'\n",
        ("/app/out",),
    ),
)

REWARD = "if [ $? -eq 0 ]; then\n  echo 1 > /logs/verifier/reward.txt\nelse\n  echo 0 > /logs/verifier/reward.txt\nfi\n"
TOML = '[metadata]\ndifficulty = "easy"\ncategory = "file-operations"\ntags = ["files"]\n\n[verifier]\ntimeout_sec = 900.0\n'


def terminal_bench_2(content: Content) -> Files:
    """terminal-bench 2: an image by its name beside the Dockerfile, uv fetched by the tests, CTRF."""
    toml = (
        f'version = "1.0"\n\n{TOML}\n[agent]\ntimeout_sec = 900.0\n\n[environment]\nbuild_timeout_sec = 600.0\n'
        f'docker_image = "registry.invalid/{content.name}:20251031"\ncpus = 1\nmemory = "2G"\nstorage = "10G"\n'
    )
    test = (
        "#!/bin/bash\n\napt-get update\napt-get install -y curl\n\n"
        "curl -LsSf https://astral.sh/uv/0.9.5/install.sh | sh\n\nsource $HOME/.local/bin/env\n\n"
        'if [ "$PWD" = "/" ]; then\n    echo "Error: No working directory set."\n    exit 1\nfi\n\n'
        "uvx \\\n  -p 3.13 \\\n  -w pytest==8.4.1 \\\n  -w pytest-json-ctrf==0.3.5 \\\n"
        f"  pytest --ctrf /logs/verifier/ctrf.json /tests/test_outputs.py -rA\n\n{REWARD}"
    )
    return {"task.toml": toml, "tests/test.sh": test}


def junit_in_a_temporary_folder(content: Content) -> Files:
    """The commonest verifier: JUnit in root's own folder, read by a script on stdin."""
    toml = f'schema_version = "1.3"\n\n[task]\nname = "org/{content.name}"\n\n{TOML}\n[environment]\nallow_internet = false\n'
    test = (
        "#!/bin/bash\nset -uo pipefail\nmkdir -p /logs/verifier\nWORK=$(mktemp -d)\n"
        'python3 -m pytest /tests/test_outputs.py -q --junitxml="$WORK/junit.xml"\n'
        "python3 - \"$WORK/junit.xml\" <<'EOF'\nimport json, sys\nfrom xml.etree import ElementTree\n\n"
        "suite = next(ElementTree.parse(sys.argv[1]).iter('testsuite'))\n"
        "bad = sum(int(suite.get(name)) for name in ('failures', 'errors', 'skipped'))\n"
        "total = int(suite.get('tests'))\n"
        "with open('/logs/verifier/reward.json', 'w') as file:\n"
        "    json.dump({'reward': float(total > 0 and not bad)}, file)\nEOF\n"
    )
    return {"task.toml": toml, "tests/test.sh": test}


def harbor_ctrf(content: Content) -> Files:
    """Harbor's own template for a shared verifier, with `set -e`, and fields that few know."""
    toml = (
        f'schema_version = "1.4"\ncanary = "0000"\nartifacts = []\n\n[task]\nname = "{content.name}"\nanything = 1\n\n{TOML}'
        "\n[verifier.env]\n\n[agent]\ntimeout_sec = 900.0\n[agent.kwargs]\nmax_turns = 60\n\n"
        "[environment]\ngpus = 0\nmcp_servers = []\nhealthcheck = { command = 'true' }\n\n[solution.env]\n"
    )
    test = (
        "#!/bin/bash\nset -e\n\nif pytest --ctrf /logs/verifier/ctrf.json /tests/test_outputs.py -rA; then\n"
        "  echo 1 > /logs/verifier/reward.txt\nelse\n  echo 0 > /logs/verifier/reward.txt\nfi\n"
    )
    return {"task.toml": toml, "tests/test.sh": test}


def script_and_exit_status(content: Content) -> Files:
    """A script that runs the tests' functions, and its exit status."""
    test = f"#!/bin/bash\n\nmkdir -p /logs/verifier\npython3 /tests/verify.py\n{REWARD}"
    verify = (
        "import sys\n\nsys.path.insert(0, '/tests')\nimport test_outputs\n\n"
        "for name in sorted(dir(test_outputs)):\n    if name.startswith('test_'):\n        getattr(test_outputs, name)()\n"
    )
    return {"task.toml": f'version = "2.0"\n{TOML}', "tests/test.sh": test, "tests/verify.py": verify}


def old_compose(content: Content) -> Files:
    """An early Harbor task: a docker-compose.yaml of one container, and a partial reward in a table."""
    compose = (
        "services:\n  main:\n    build:\n      context: ${CONTEXT_DIR}\n    image: ${MAIN_IMAGE_NAME}\n"
        '    command: [ "sh", "-c", "sleep infinity" ]\n    environment:\n      - TEST_DIR=${TEST_DIR}\n      - LANG=C.UTF-8\n'
        "    volumes:\n      - ${HOST_LOGS}:/logs\n    deploy:\n      resources:\n        limits:\n          cpus: ${CPUS}\n"
    )
    test = (
        "#!/bin/bash\npython3 -m pytest -rA /tests/test_outputs.py\n[ $? -eq 0 ] && R=1.0 || R=0.0\n"
        'echo "{\\"reward\\": $R, \\"quality\\": 0.5}" > /logs/verifier/reward.json\n'
    )
    return {"task.toml": f'version = "1.0"\n{TOML}', "tests/test.sh": test, "environment/docker-compose.yaml": compose}


def separate_image(content: Content) -> Files:
    """Harbor 0.25's template: the verifier has an image of its own, and sees the artifacts."""
    listed = ", ".join(f'"{path}"' for path in content.artifacts)
    toml = f'schema_version = "1.4"\nartifacts = [{listed}]\n\n{TOML}environment_mode = "separate"\n'
    toml += "\n[verifier.environment]\nbuild_timeout_sec = 600.0\nmemory_mb = 1024\nallow_internet = false\n"
    dockerfile = "FROM python:3.12-slim\n\nWORKDIR /app\n\nCOPY . /tests/\n"
    test = "#!/bin/bash\nmkdir -p /logs/verifier\npython3 -m pytest /tests/test_outputs.py -rA\n" + REWARD
    return {"task.toml": toml, "tests/test.sh": test, "tests/Dockerfile": dockerfile}


def separate_copy(content: Content) -> Files:
    """A separate verifier in a fresh copy of the environment, with a hook that publishes what it looks at."""
    listed = ", ".join(f'{{ source = "{path}", exclude = ["*.tmp"] }}' for path in content.artifacts)
    toml = f'schema_version = "1.4"\nartifacts = [{listed}]\n\n{TOML}environment_mode = "separate"\n'
    toml += '\n[[verifier.collect]]\ncommand = "mkdir -p /logs/artifacts && echo done > /logs/artifacts/state"\n'
    test = (
        "#!/bin/bash\nset -e\n[ -e /logs/artifacts/state ] || { echo 0 > /logs/verifier/reward.txt; exit 0; }\nset +e\n"
        "cd /app && python3 -m pytest /tests/test_outputs.py -rA\n" + REWARD
    )
    return {"task.toml": toml, "tests/test.sh": test}


def in_steps(content: Content) -> Files:
    """Two steps with shared tests and the first one's own; the second is the content."""
    toml = f'schema_version = "1.3"\nmulti_step_reward_strategy = "final"\n\n{TOML}\n[[steps]]\nname = "plan"\nmin_reward = 1.0\n'
    toml += '\n[[steps]]\nname = "build"\n[steps.agent]\ntimeout_sec = 600.0\n[steps.verifier]\ntimeout_sec = 300.0\n'
    plan = "test -s /app/plan.md && echo 1 > /logs/verifier/reward.txt || echo 0 > /logs/verifier/reward.txt\n"
    return {
        "task.toml": toml,
        "tests/test.sh": "#!/bin/bash\npython3 -m pytest /tests/test_outputs.py -rA\n" + REWARD,
        "steps/plan/instruction.md": "Write a plan into /app/plan.md.\n",
        "steps/plan/tests/test.sh": plan,
        "steps/plan/solution/solve.sh": "echo think > /app/plan.md\n",
        "steps/build/instruction.md": f"Do {content.name}.\n",
        "steps/build/workdir/setup.sh": "rm -f setup.sh\n",
        "steps/build/solution/solve.sh": content.solve + "\n",
    }


SHAPES: tuple[Callable[[Content], Files], ...] = (
    terminal_bench_2,
    junit_in_a_temporary_folder,
    harbor_ctrf,
    script_and_exit_status,
    old_compose,
    separate_image,
    separate_copy,
    in_steps,
)


def make_all(root: Path) -> list[str]:
    """Write each content in each shape into directories below `root`. Returns their names."""
    names = []
    for shape in SHAPES:
        for content in CONTENTS:
            name = f"{content.name}.{shape.__name__.replace('_', '-')}"
            files = {
                "instruction.md": f"<!-- canary GUID 0 -->\n\nDo {content.name}.\n",
                "environment/Dockerfile": f"FROM ubuntu:24.04\nWORKDIR /app\n{content.image}",
                "tests/test_outputs.py": content.test,
                "solution/solve.sh": f"#!/bin/bash\n\n{content.solve}\n",
                **shape(content),
            }
            for path, text in files.items():
                (root / name / path).parent.mkdir(parents=True, exist_ok=True)
                (root / name / path).write_text(text)
            names.append(name)
    return names
