"""Hook of mkdocs: pages that stand beside `docs/` join the site, and links between both lead to where they are there.

`README.md` becomes the first page. Examples are copied, and shown on a page of their own.
"""

from __future__ import annotations

import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
PAGES = {"README.md": "index.md", "ARCHITECTURE.md": "", "CONTRIBUTING.md": "", "CHANGELOG.md": "", "LICENSE": ""}
"""Files at the top: their names in the site, empty for the same."""
EXAMPLES = {
    "examples/**/*.yaml": "yaml",
    "examples/producers/python/*.py": "python",
    "examples/producers/go/*.go": "go",
    "examples/producers/java/src/**/*.java": "java",
}
"""What is copied and shown, with its language."""
_LINK = re.compile(r"\]\((?!\w+:)([^)#\s]+)")
_FOLDERS = {"examples/": "examples.md", "examples/producers/": "examples.md"}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add what lies outside of `docs/`."""
    for name, target in PAGES.items():
        files.append(File.generated(config, target or name, content=(ROOT / name).read_text()))
    examples = [(path, language) for each, language in EXAMPLES.items() for path in sorted(ROOT.glob(each))]
    for path, _ in examples:
        name = path.relative_to(ROOT).as_posix()
        files.append(File.generated(config, name, abs_src_path=str(path)))
    sections = [f"## {path.relative_to(ROOT)}\n\n```{kind}\n{path.read_text()}```\n" for path, kind in examples]
    files.append(File.generated(config, "examples.md", content="\n".join(["# Examples\n", *sections])))
    return files


def on_page_markdown(markdown: str, page: Page, **_: object) -> str:
    """Links as the repository has them, relative to the site's folders."""
    if "/" in page.file.src_uri:
        return markdown
    return _LINK.sub(lambda found: f"]({_in_site(found[1])}", markdown)


def _in_site(target: str) -> str:
    """Example: `docs/audit.md` of the README and `../examples/a.yaml` of a page lie beside them in the site."""
    inside = target.removeprefix("../").removeprefix("docs/")
    inside = PAGES.get(inside) or inside
    return _FOLDERS.get(inside, inside)
