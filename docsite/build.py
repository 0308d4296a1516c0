"""Builds the site from the pages with Zensical. `python -m docsite` and the build of the package use this.

The result is the folder from which the service serves /guides: HTML pages whose links are relative, their Markdown, the
search index, and the hashes of the inline scripts of the theme.
"""

from __future__ import annotations

import base64
import fcntl
import hashlib
import json
import re
import shutil
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from docsite.api_reference import pages as api_pages
from docsite.freshness import INPUTS, ROOT, SITE, is_fresh, sources_digest
from docsite.pages import IMAGES, SECTIONS, BrokenPage, Documentation

POLICY: Final = "policy.json"
"""The file of the site with the hashes of the inline scripts and styles that its Content-Security-Policy allows."""
SEARCH_STYLE: Final = "sha256-NwSx/R2V/U4jnW0Tq5pQ53Y/rzPVJ4dqE7D6UTA/J1k="
"""The hash of the style that the theme adds for its search. A test in a browser fails when a new version has another."""
UNUSED: Final = ("404.html", "sitemap.xml*", "objects.inv", "assets/stylesheets/classic", "assets/images")
BUILD_TIMEOUT_S: Final = 300.0

INLINE_SCRIPT: Final = re.compile(
    r"<script(?![^>]*\bsrc=)(?![^>]*application/json)[^>]*>(.*?)</script>", re.DOTALL
)
ARTICLE: Final = re.compile(r"<article.*?</article>", re.DOTALL)
ACTIVE: Final = re.compile(r"<script|<style|<iframe|\sstyle=|\son[a-z]+=", re.IGNORECASE)
"""What no page may have: the pages are text."""
LANGUAGES: Final = {"bash": "curl", "python": "Python", "ts": "TypeScript"}
IN_ALL_LANGUAGES: Final = re.compile(
    r"^```bash\n(.*?)^```\n\n```python\n(.*?)^```\n\n```ts\n(.*?)^```\n", re.MULTILINE | re.DOTALL
)
"""A program in three languages: fences that directly follow each other."""
CODE: Final = re.compile(r"`[^`]+`")


class BuildFailed(Exception):
    """The generator stopped. The message is what it printed."""


def build_if_stale() -> bool:
    """Build the site if it is missing or older than its sources, and return whether that was so. Several processes may
    call this at once.

    Raises:
        BrokenPage: if a page has HTML, or its output has more than text.
        BuildFailed: if the generator finds a broken link or fails in another way.
    """
    with (SITE.parent / ".guides.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if is_fresh():
            return False
        digest = sources_digest()
        documentation = load_documentation()
        with tempfile.TemporaryDirectory(prefix="docsite-") as name:
            project = Path(name)
            _write_project(documentation, project)
            _generate(project)
            _finish(documentation, project / "site")
            shutil.rmtree(SITE, ignore_errors=True)
            shutil.copytree(project / "site", SITE)
        INPUTS.write_text(digest)
    return True


def broken_links() -> list[str]:
    """Return the links of pages to files that do not exist in this checkout, as `page: link`."""
    return load_documentation().missing_targets()


def load_documentation() -> Documentation:
    """Return the pages of `docs/` and of the HTTP API."""
    document = json.loads((ROOT / "openapi" / "openapi.json").read_bytes())
    return Documentation(ROOT, api_pages(document))


def _write_project(documentation: Documentation, project: Path) -> None:
    """Write what the generator reads: the pages with links to each other, the pictures and the settings."""
    for page in documentation.pages.values():
        _write(project / "pages" / page.path, _for_generator(documentation.markdown(page)))
    for image in sorted((ROOT / "docs" / IMAGES).iterdir()):
        target = project / "pages" / IMAGES / image.name
        target.parent.mkdir(exist_ok=True)
        shutil.copy(image, target)
    shutil.copytree(ROOT / "docsite" / "theme", project / "theme")
    settings = (ROOT / "docsite" / "zensical.toml").read_text("utf-8")
    first, _, rest = settings.partition("\n[project.theme]\n")
    navigation = ",\n".join(f"  {entry}" for entry in _navigation(documentation))
    _write(project / "zensical.toml", f"{first}\nnav = [\n{navigation},\n]\n\n[project.theme]\n{rest}")


def _for_generator(markdown: str) -> str:
    """Return a page in the dialect of Python-Markdown: a fence has one word, a pipe in code needs no backslash, and a
    program in three languages is in tabs."""
    plain = re.sub(r"^(`{3,}\w+) [^`\n]+$", r"\1", markdown, flags=re.MULTILINE)
    lines = IN_ALL_LANGUAGES.sub(_side_by_side, plain).split("\n")
    return "\n".join(CODE.sub(_without_escapes, line) if line.startswith("|") else line for line in lines)


def _side_by_side(programs: re.Match[str]) -> str:
    """Return three fences as tabs with the names of their languages."""
    tabs = []
    for (language, label), code in zip(LANGUAGES.items(), programs.groups(), strict=True):
        tabs.append(f'=== "{label}"\n\n' + textwrap.indent(f"```{language}\n{code}```\n", "    "))
    return "\n".join(tabs)


def _without_escapes(code: re.Match[str]) -> str:
    return code[0].replace("\\|", "|")


def _navigation(documentation: Documentation) -> Iterator[str]:
    """Return the sections with their pages as inline tables of TOML."""
    for section in SECTIONS:
        pages = documentation.section(section)
        entries = [
            f"{{{json.dumps(page.short_title, ensure_ascii=False)} = {json.dumps(page.path)}}}"
            for page in pages
        ]
        if entries:
            yield f"{{{json.dumps(section)} = [{', '.join(entries)}]}}"


def _generate(project: Path) -> None:
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "zensical",
            "build",
            "--strict",
            "--config-file",
            str(project / "zensical.toml"),
        ],
        cwd=project,
        capture_output=True,
        text=True,
        timeout=BUILD_TIMEOUT_S,
        check=False,
    )
    if done.returncode != 0:
        raise BuildFailed(done.stdout + done.stderr)


def _finish(documentation: Documentation, site: Path) -> None:
    """Remove what is not used, add the Markdown of all pages, and note what the policy allows."""
    for pattern in UNUSED:
        for path in sorted(site.glob(pattern)):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    for page in documentation.pages.values():
        _write(site / page.path, documentation.markdown(page))
    _write(site / "llms.txt", documentation.index())
    _write(site / "llms-full.txt", documentation.full_text())
    scripts = sorted({hash for file in site.rglob("*.html") for hash in _script_hashes(file)})
    _write(site / POLICY, json.dumps({"scripts": scripts, "styles": [SEARCH_STYLE]}, indent=1) + "\n")


def _script_hashes(file: Path) -> Iterator[str]:
    """Return the hash of each inline script of a page, as a Content-Security-Policy names it. All are of the theme."""
    html = file.read_text("utf-8")
    article = ARTICLE.search(html)
    if article is None or (found := ACTIVE.search(article[0])):
        raise BrokenPage(
            f"{file.name}: the text of the page has {found[0] if article and found else 'no place'}"
        )
    for script in INLINE_SCRIPT.findall(html):
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        yield f"sha256-{digest}"


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")
