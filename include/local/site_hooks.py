"""What MkDocs does beside building: take in pages that lie elsewhere, and refuse what is not local.

Pages are written to be read in the repository, too. So links to files outside of `docs/` are kept
there, and become on the site the page that the file is shown as, or plain text.
"""

import re
from pathlib import Path
from typing import Any

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[2]
GENERATED = ROOT / ".local" / "site-pages"
SHOWN = {"SECURITY.md": "security.md", "CHANGELOG.md": "changelog.md", "README.md": "index.md"}
"""Files of the repository, and the page that shows each."""

LINK = re.compile(r"(?<!!)\[([^\]]*)\]\(\.\./([^)#]+)(#[^)]*)?\)")
FETCHED = re.compile(
    r"""<(?:script|img|iframe|source)\b[^>]*\bsrc=["']?(?:https?:)?//"""
    r"""|<link\b(?![^>]*rel=["']?canonical)[^>]*\bhref=["']?(?:https?:)?//"""
    r"""|@import|url\(["']?(?:https?:)?//"""
)
"""What a browser would fetch from another host."""


def on_files(files: Files, config: Any) -> Files:
    """Add the generated pages, and those that lie beside `docs/`."""
    for page in sorted(GENERATED.glob("*.md")):
        files.append(File.generated(config, page.name, content=page.read_text()))
    for name, page_name in SHOWN.items():
        if page_name != "index.md":
            text = _as_page((ROOT / name).read_text())
            files.append(File.generated(config, page_name, content=text))
    return files


def _as_page(text: str) -> str:
    """Return a file of the repository's root with its links as those of a page in `docs/`."""
    text = re.sub(r"\]\(docs/", "](", text)
    for name, page_name in SHOWN.items():
        text = text.replace(f"]({name}", f"]({page_name}")
    return text


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Lead links out of `docs/` to the page that shows the file, or make them plain text."""

    def target(link: re.Match[str]) -> str:
        text, path, anchor = link.groups()
        return f"[{text}]({SHOWN[path]}{anchor or ''})" if path in SHOWN else text

    return LINK.sub(target, markdown)


def on_post_build(config: Any) -> None:
    """Refuse a site whose pages would have a browser ask another host for anything.

    Raises:
        PluginError: a page or style sheet does.
    """
    site = Path(config["site_dir"])
    for file in sorted([*site.rglob("*.html"), *site.rglob("*.css")]):
        found = FETCHED.search(file.read_text())
        if found:
            where = file.relative_to(site)
            raise PluginError(f"{where} would fetch from elsewhere: {found[0][:200]}")
