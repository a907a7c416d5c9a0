"""What the files around the code say about versions, commands and each other is true."""

from __future__ import annotations

import re
import runpy
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from pnml._version import __version__

ROOT = Path(__file__).parent.parent
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def text_of(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def parsed(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def commands(path: Path) -> list[str]:
    """Return the commands of all steps of a workflow."""
    steps = [step for job in parsed(path)["jobs"].values() for step in job["steps"]]
    return [step["run"] for step in steps if "run" in step]


def test_checks_run_on_every_python_and_system_that_is_promised() -> None:
    matrix = parsed(ROOT / ".github/workflows/checks.yml")["jobs"]["tests"]["strategy"]["matrix"]
    promised = re.findall(r'"Programming Language :: Python :: (3\.\d+)"', text_of("pyproject.toml"))
    assert matrix["python"] == promised
    assert f'requires-python = ">={promised[0]}"' in text_of("pyproject.toml")
    assert f"Python {promised[0]} to {promised[-1]}" in text_of("README.md")
    assert matrix["os"] == ["ubuntu-latest", "macos-latest", "windows-latest"]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_workflows_call_what_is_there(path: Path) -> None:
    run = "\n".join(commands(path))
    targets = re.findall(r"^([a-z-]+):", text_of("Makefile"), re.MULTILINE)
    assert set(re.findall(r"^make ([a-z-]+)", run, re.MULTILINE)) <= set(targets)
    assert all((ROOT / name).is_file() for name in re.findall(r"python (\S+\.py)", run))
    extras = re.findall(r"^(\w+) = \[", text_of("pyproject.toml"), re.MULTILINE)
    assert set(re.findall(r"\.\[(\w+)\]", run)) <= set(extras)


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_workflows_may_write_only_where_they_publish(path: Path) -> None:
    workflow = parsed(path)
    assert workflow["permissions"] == {"contents": "read"}
    allowed = {"pypi": {"id-token": "write"}, "github": {"contents": "write"}}
    given = {name: job["permissions"] for name, job in workflow["jobs"].items() if "permissions" in job}
    assert given == (allowed if path.name == "release.yml" else {})


def test_hooks_before_a_commit_are_those_of_make_lint() -> None:
    (local,) = parsed(ROOT / ".pre-commit-config.yaml")["repos"]
    entries = [hook["entry"] for hook in local["hooks"]]
    assert entries == [".venv/bin/ruff check --fix", ".venv/bin/ruff format", ".venv/bin/mypy"]
    recipe = text_of("Makefile").split("\nlint:")[1].split("\n\n")[0]
    for tool in ("ruff check", "ruff format", "mypy"):
        assert f"$(BIN)/{tool}" in recipe


def test_citation_names_this_version_and_the_paper() -> None:
    citation = parsed(ROOT / "CITATION.cff")
    assert citation["version"] == __version__
    assert f'license = "{citation["license"]}"' in text_of("pyproject.toml")
    paper = citation["preferred-citation"]
    bibtex = re.findall(r"^```bibtex\n(.*?)^```$", text_of("README.md"), re.MULTILINE | re.DOTALL)[0]
    assert f"{{{paper['title']}}}" in bibtex
    names = " and ".join(f"{one['family-names']}, {one['given-names']}" for one in paper["authors"])
    assert f"{{{names}}}" in bibtex
    assert f"version = {{{__version__}}}" in bibtex
    assert f'Paper = "{paper["url"]}"' in text_of("pyproject.toml")


def test_dockerfile_copies_and_installs_what_is_there() -> None:
    docker = text_of("Dockerfile")
    kept = {line[1:] for line in text_of(".dockerignore").splitlines() if line.startswith("!")}
    copied = [word for line in re.findall(r"^COPY (?!--from)(.*)$", docker, re.MULTILINE) for word in line.split()[:-1]]
    assert set(copied) == kept
    assert all((ROOT / name).exists() for name in copied)
    (extras,) = re.findall(r'"\$wheel\[(.*?)\]"', docker)
    declared = re.findall(r"^(\w+) = \[", text_of("pyproject.toml"), re.MULTILINE)
    assert set(extras.split(",")) <= set(declared)


@pytest.mark.parametrize("name", ["bug.yml", "idea.yml"])
def test_issue_forms_have_what_github_asks_for(name: str) -> None:
    form = parsed(ROOT / ".github" / "ISSUE_TEMPLATE" / name)
    assert {"name", "description", "body"} <= form.keys()
    assert all(field["type"] == "textarea" and field["attributes"]["label"] for field in form["body"])


@pytest.fixture
def release(tmp_path: Path) -> Path:
    """Return a copy of the files that a release is checked by, ready to be released as version 9.8.7."""
    for name in (
        "src/pnml/_version.py",
        "CITATION.cff",
        "CHANGELOG.md",
        "pyproject.toml",
        "README.md",
        "docs/index.md",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    change(tmp_path / "src/pnml/_version.py", __version__, "9.8.7")
    change(tmp_path / "CITATION.cff", f"version: {__version__}", "version: 9.8.7\ndate-released: 2030-12-31")
    change(tmp_path / "CHANGELOG.md", "## [Unreleased]", "## [Unreleased]\n\n## [9.8.7], 2030-12-31")
    change(tmp_path / "pyproject.toml", "[project.urls]", '[project.urls]\nSource = "https://github.com/a/pnml"')
    for page in ("README.md", "docs/index.md"):
        change(tmp_path / page, "No release is on PyPI yet", "Releases are on PyPI")
    return tmp_path


def change(path: Path, before: str, after: str) -> None:
    text = path.read_text(encoding="utf-8")
    assert before in text
    path.write_text(text.replace(before, after, 1), encoding="utf-8")


def notes(root: Path, tag: str = "v9.8.7") -> str:
    found: str = runpy.run_path(str(ROOT / ".github" / "check_release.py"))["release_notes"](tag, "a/pnml", root)
    return found


def test_notes_of_a_release_are_its_part_of_the_changelog(release: Path) -> None:
    found = notes(release)
    assert found.startswith(text_of("CHANGELOG.md").split("## [Unreleased]\n")[1].lstrip()[:100])


@pytest.mark.parametrize(
    ("name", "before", "after", "message"),
    [
        ("src/pnml/_version.py", "9.8.7", "9.8.6", r"the tag is v9\.8\.7, and src/pnml/_version\.py has 9\.8\.6"),
        ("CITATION.cff", "version: 9.8.7", "version: 9.8.6", "another version than"),
        ("CITATION.cff", "2030-12-31", "2030-12-30", "another date than"),
        ("CHANGELOG.md", "[9.8.7]", "[9.8.6]", r"no heading '## \[9\.8\.7\], YYYY-MM-DD'"),
        ("pyproject.toml", "a/pnml", "b/pnml", "does not name https://github.com/a/pnml"),
        ("README.md", "Releases are on PyPI", "No release is on PyPI yet", "README.md says that no release"),
        ("docs/index.md", "Releases are on PyPI", "No release is on PyPI yet", r"index\.md says that no release"),
    ],
)
def test_release_that_contradicts_itself_is_refused(
    release: Path, name: str, before: str, after: str, message: str
) -> None:
    change(release / name, before, after)
    with pytest.raises(ValueError, match=message):
        notes(release)
