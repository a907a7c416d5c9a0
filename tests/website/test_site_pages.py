"""The pages of the site that are made from the repository: links, commands, docstrings, the Python reference."""

from __future__ import annotations

import doctest
import re
from pathlib import Path
from typing import Any

import pytest
import typer

import pnml
import site_commands
import site_docstrings
import site_links
import site_numbers
import site_offline
import site_references
from pnml.cli import app

ROOT = Path(__file__).resolve().parents[2]
API = sorted((ROOT / "website" / "api").glob("*.md"))


@pytest.mark.parametrize(
    "module",
    [site_docstrings, site_links, site_numbers, site_offline, site_references],
    ids=lambda module: module.__name__,
)
def test_examples_in_docstrings_hold(module: object) -> None:
    found = doctest.testmod(module)  # type: ignore[arg-type]
    assert found.attempted > 0
    assert found.failed == 0


def test_doctests_become_blocks_that_end_where_they_end() -> None:
    text = "A line.\n\n    >>> for x in range(2):\n    ...     x\n    0\n    1\n\nAnother.\n\n>>> 1\n1\n\nThe end."
    assert site_docstrings.as_markdown(text) == (
        "A line.\n\n    ```pycon\n    >>> for x in range(2):\n    ...     x\n    0\n    1\n    ```\n\nAnother.\n\n"
        "```pycon\n>>> 1\n1\n```\n\nThe end."
    )


def test_numbers_of_tables_keep_their_spread_and_code_stays() -> None:
    page = "A mean of 5 ± 1.\n\n| a | b |\n|---|---|\n| 89.1 ± 1.5 | 1 ± 2 (3 ± 4) |\n\n```text\n| 1 ± 2 |\n```\n"
    made = site_numbers.unbroken(page)
    assert made.replace("\N{NARROW NO-BREAK SPACE}", " ") == page
    table, code = made.split("```text")
    assert table.count("\N{NARROW NO-BREAK SPACE}±\N{NARROW NO-BREAK SPACE}") == 3
    assert " ± " in table.splitlines()[0]  # text may wrap
    assert code == "\n| 1 ± 2 |\n```\n"


@pytest.mark.parametrize(
    ("page", "link", "expected"),
    [
        ("docs/results.md", "quality.md", "quality.md"),
        ("docs/guides/uses.md", "../images/a.png", "../images/a.png"),
        ("docs/guides/uses.md", "../../results/a.json", "../project/results/a.json"),
        ("docs/index.md", "../examples/files.ipynb", "examples/files.md"),
        ("examples/files.ipynb", "../docs/guides/uses.md", "../guides/uses.md"),
        ("CONTRIBUTING.md", "docs/scale.md", "../scale.md"),
        ("studies/layers/README.md", "plan.md", "plan.md"),
        ("studies/layers/README.md", "../../docs/tables/a.md", "../../../tables/a.md"),
    ],
)
def test_links_lead_to_the_same_file(page: str, link: str, expected: str) -> None:
    assert site_links.on_the_site(f"[a]({link}#b) and [c]({link})", page) == f"[a]({expected}#b) and [c]({expected})"


@pytest.mark.parametrize("text", ["[a](https://example.org)", "[a](#here)", "`[a](b.md)`", "```text\n[a](b.md)\n```\n"])
def test_links_to_elsewhere_and_in_code_stay(text: str) -> None:
    assert site_links.on_the_site(text, "CONTRIBUTING.md") == text


def test_linked_files_are_found_by_way_of_each_other(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "a.md").write_text("[b](../b.md), [c](c.md), [d](../missing.md)", encoding="utf-8")
    (tmp_path / "b.md").write_text("[c](c.json), [b](b.md)", encoding="utf-8")
    (tmp_path / "c.json").write_text("{}", encoding="utf-8")
    assert site_links.linked_from(["docs/a.md"], tmp_path) == ["b.md", "c.json"]


def test_the_page_of_commands_has_every_command_with_its_options() -> None:
    sections = dict(re.findall(r"^## pnml (.*?)\n(.*?)(?=^## |\Z)", site_commands.page(), re.MULTILINE | re.DOTALL))
    root: Any = typer.main.get_command(app)
    commands = {name: command for name, command in root.commands.items() if not hasattr(command, "commands")}
    for group in set(root.commands) - set(commands):
        commands |= {f"{group} {name}": command for name, command in root.commands[group].commands.items()}
    assert set(sections) == set(commands)
    for name, command in commands.items():
        options = {word for parameter in command.params for word in parameter.opts if word.startswith("-")}
        missing = {word for word in options if not re.search(rf"(`|, ){word}\b", sections[name])}
        assert missing == options & set(site_commands.COMMON)
        assert "```bash\n" in sections[name]


@pytest.mark.parametrize(
    "text",
    [
        "```python\npnml.guard\n```",
        "```text\n`pnml.guard`\n```",
        "# `pnml.guard`",
        "[the guide to `pnml.guard`](a.md)",
        "`pnml.other` and `pnml guess`",
        "pnml.guard without code",
    ],
)
def test_names_in_code_titles_and_links_are_not_linked(text: str) -> None:
    assert site_references.linked(text, "a.md", {"pnml.guard"}, {"pnml fit"}) == text


def test_names_are_linked_where_they_stand_first() -> None:
    text = "`pnml data list`, `pnml report results`, `pnml.guard`, `pnml.guard`"
    commands = {"pnml data list", "pnml report"}
    assert site_references.linked(text, "a.md", {"pnml.guard"}, commands) == (
        "[`pnml data list`](commands.md#pnml-data-list), [`pnml report results`](commands.md#pnml-report), "
        "[`pnml.guard`][pnml.guard], `pnml.guard`"
    )


@pytest.mark.parametrize(
    "tag",
    [
        '<script src="https://a.org/b.js">',
        '<link rel="stylesheet" href="http://a.org/b.css">',
        '<img alt="a" src=//a.org/b.png>',
        "<iframe src='https://a.org'>",
    ],
)
def test_what_a_page_loads_from_elsewhere_is_found(tag: str) -> None:
    assert site_offline.loaded_from_elsewhere(f"<p>text</p>{tag}") == [tag]


def test_every_page_is_in_the_navigation() -> None:
    navigation = re.findall(r": (\S+\.md)$", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), re.MULTILINE)
    pages = [path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")]
    tables = {"families.md", "photographs-tables.md", "text-ood.md"}
    missing = sorted({page for page in pages if not page.startswith("tables/")} - tables - set(navigation))
    assert missing == [], "add these pages to nav in mkdocs.yml"
    assert len(set(navigation)) == len(navigation)


def test_every_public_name_is_in_the_python_reference_once() -> None:
    documented = [
        name for page in API for name in re.findall(r"^::: (\S+)", page.read_text(encoding="utf-8"), re.MULTILINE)
    ]
    assert len(set(documented)) == len(documented)
    assert {f"pnml.{name}" for name in dir(pnml) if name != "__version__"} <= set(documented)


def test_every_warning_is_in_the_python_reference() -> None:
    page = (ROOT / "website" / "api" / "warnings.md").read_text(encoding="utf-8")
    documented = set(re.findall(r"^::: \S+\.(\w+)$", page, re.MULTILINE))
    sources = [path.read_text(encoding="utf-8") for path in (ROOT / "src" / "pnml").rglob("*.py")]
    defined = {name for text in sources for name in re.findall(r"^class (\w+)\(UserWarning\)", text, re.MULTILINE)}
    assert documented == defined
