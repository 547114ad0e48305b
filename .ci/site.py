"""Make the pages of the site that stand elsewhere in the repository: README and its siblings, examples, docstrings."""

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import griffe
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parent.parent
PUBLIC = {
    "Environments": ["envs.base.AgentEnv", "envs.functions", "envs.functions.running", "envs.rewards"],
    "Nouns": ["envs.types", "atropos_agent.types", "envs.resources"],
    "Runs": ["envs.running.feed", "envs.runs.reader", "envs.records.read", "envs.records.frames"],
    "Agents": ["atropos_agent.agent", "atropos_agent.turns", "atropos_agent.gateway", "envs.agents.facts"],
    "Tools and formats": ["tools.base", "atropos_agent.formats.base"],
    "Sandboxes": ["sandboxes.base", "sandboxes.docker", "sandboxes.sync", "sandboxes.wrapped", "sandboxes.registry"],
    "Trainers": ["envs.delivery.exports", "envs.trainers.trl_async", "envs.trainers.trl_grpo"],
}
"""The modules of the reference. Names that begin with an underscore are left out."""


def reference() -> Iterator[str]:
    """Give the lines of the reference, which mkdocstrings fills."""
    yield "# Python\n\nPublic names by module, from their docstrings."
    for title, names in PUBLIC.items():
        yield f"## {title}"
        yield from (f"::: {name}\n    options: {{heading_level: 3}}" for name in names)


def gallery() -> Iterator[str]:
    """Give the lines of the gallery: each example whole."""
    yield "# Examples\n\nEach file has fewer than 40 lines. mypy checks it, and a test runs it."
    for path in sorted((ROOT / "examples").glob("*.py")):
        source = path.read_text()
        title = (ast.get_docstring(ast.parse(source)) or "").splitlines()[0]
        yield f'## {path.name} {{ #{path.stem} }}\n\n{title}\n\n```python title="examples/{path.name}"\n{source}```'


def notebook() -> Iterator[str]:
    """Give the cells of the notebook with their saved output."""
    for cell in json.loads((ROOT / "examples/notebook.ipynb").read_text())["cells"]:
        text = "".join(cell["source"])
        yield text if cell["cell_type"] == "markdown" else f"```python\n{text}\n```"
        for output in cell.get("outputs", []):
            yield f"```text\n{''.join(output['text'])}```"


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages."""
    pages = {name: (ROOT / name).read_text() for name in ("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")}
    pages["index.md"] = (ROOT / "README.md").read_text()
    for lines in (reference, gallery, notebook):
        pages[f"{lines.__name__}.md"] = "\n\n".join(lines()) + "\n"
    for name, text in pages.items():
        files.append(File.generated(config, name, content=text))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Point links between files of the repository at pages of the site."""
    del page, config, files
    markdown = re.sub(r"\]\((?:\.\./|docs/)(?=[\w.-])", "](", markdown)
    # Only the forge's renderer wants bars in code of a table escaped.
    markdown = re.sub(r"`[^`\n]+`", lambda code: code[0].replace("\\|", "|"), markdown)
    markdown = re.sub(r"\]\(README\.md", "](index.md", markdown)
    return re.sub(r"\]\((?:\.\./)?examples/(\w+)\.py\)", r"](gallery.md#\1)", markdown)


class Fields(griffe.Extension):
    """Makes a list of the lines `name: description` in a docstring."""

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        """Rewrite the docstring of one object."""
        if obj.docstring:
            lines = re.sub(r"^(\w+(?:, \w+)*): (?=\S)", r"- `\1`: ", obj.docstring.value, flags=re.MULTILINE)
            lines = re.sub(r"(?<!\n)\n(- `)", r"\n\n\1", lines)
            obj.docstring.value = re.sub(r"::$", ":", lines, flags=re.MULTILINE)
