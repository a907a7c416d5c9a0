"""What is particular about this site: pages from elsewhere in the repository, and nothing loaded from elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File

import site_commands
import site_links
import site_notebooks
import site_numbers
import site_offline
import site_references

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parent.parent
API = ROOT / "website" / "api"
PROJECT_PAGES = ("CONTRIBUTING.md", "CHANGELOG.md")


def on_files(files: Files, config: MkDocsConfig, **_: Any) -> Files:
    """Add the pages and files that are not below ``docs``."""
    in_docs = [f"docs/{file.src_uri}" for file in files.documentation_pages()]
    for path in sorted({*PROJECT_PAGES, *site_links.linked_from([*in_docs, *PROJECT_PAGES], ROOT)}):
        if path.endswith(".ipynb"):
            _add_notebook(files, config, path)
        else:
            files.append(File.generated(config, site_links.place(path), abs_src_path=str(ROOT / path)))
    for page in sorted(API.glob("*.md")):
        files.append(File.generated(config, f"api/{page.name}", abs_src_path=str(page)))
    files.append(File.generated(config, "commands.md", content=site_commands.page()))
    files.append(File.generated(config, "style.css", abs_src_path=str(ROOT / "website" / "style.css")))
    return files


def _add_notebook(files: Files, config: MkDocsConfig, path: str) -> None:
    """Add a notebook as a page with its pictures, and as a file to download."""
    target = Path(site_links.place(path))
    text, pictures = site_notebooks.page(site_notebooks.read(ROOT / path), target.stem)
    files.append(File.generated(config, str(target), content=text))
    files.append(File.generated(config, str(target.with_suffix(".ipynb")), abs_src_path=str(ROOT / path)))
    for name, picture in pictures.items():
        files.append(File.generated(config, str(target.with_name(name)), content=picture))


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Turn links between files into links between pages, add those to the reference, and keep numbers on one line."""
    source = page.file.src_uri
    if source.startswith(("api/", "commands")):
        return markdown
    if source.startswith("examples/"):
        name = f"{Path(source).stem}.ipynb"
        text = (
            f"{site_links.on_the_site(markdown, f'examples/{name}')}\n[Download this notebook]({name}){{ download }}\n"
        )
    else:
        where = source.removeprefix("project/") if source.startswith("project/") else f"docs/{source}"
        text = site_links.on_the_site(markdown, where)
    names = site_references.documented(path.read_text(encoding="utf-8") for path in API.glob("*.md"))
    return site_references.linked(site_numbers.unbroken(text), source, names, site_commands.names())


def on_post_page(output: str, page: Page, **_: Any) -> str:
    """Raise if a page loads anything from another server."""
    if found := site_offline.loaded_from_elsewhere(output):
        raise PluginError(f"{page.file.src_uri}: expected a page that loads nothing from elsewhere, got {found[0]}")
    return output
