"""What is particular about this site: pages from elsewhere in the repository, and nothing loaded from elsewhere."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File

import site_commands
import site_links

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parent.parent
PROJECT_PAGES = ("CONTRIBUTING.md", "CHANGELOG.md")
_LOADED = re.compile(r"<(?:script|link|img|iframe|source)\b[^>]*\s(?:src|href)=\"?(?:https?:)?//[^>]*>")


def on_files(files: Files, config: MkDocsConfig, **_: Any) -> Files:
    """Add the pages and files that are not below ``docs``."""
    in_docs = [f"docs/{file.src_uri}" for file in files.documentation_pages()]
    for path in {*PROJECT_PAGES, *site_links.linked_from([*in_docs, *PROJECT_PAGES], ROOT)}:
        files.append(File.generated(config, site_links.place(path), abs_src_path=str(ROOT / path)))
    for page in sorted((ROOT / "website" / "api").glob("*.md")):
        files.append(File.generated(config, f"api/{page.name}", abs_src_path=str(page)))
    files.append(File.generated(config, "commands.md", content=site_commands.page()))
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Turn links between files of the repository into links between pages."""
    source = page.file.src_uri
    if source.startswith(("api/", "commands")):
        return markdown
    where = source.removeprefix("project/") if source.startswith("project/") else f"docs/{source}"
    return site_links.on_the_site(markdown, where)


def on_post_page(output: str, page: Page, **_: Any) -> str:
    """Raise if a page loads anything from another server."""
    if found := _LOADED.search(output):
        raise PluginError(f"{page.file.src_uri}: expected a page that loads nothing from elsewhere, got {found[0]}")
    return output
