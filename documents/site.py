"""Build the documentation site: the guide, the reference, and the pages for contributors.

    python documents/site.py             # into build/site; fails on any warning

The documents keep their paths, so links work both in the repository and on the site. They are copied to build/pages
with the files that they link to, and Zensical renders them. It is the maintained successor of MkDocs with Material, by
the makers of the latter, and reads the same configuration, so that either can be used.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from adaptive_eval.show.page.documents import demo_page

ROOT = Path(__file__).resolve().parents[1]
PAGES = ROOT / "build" / "pages"
SITE = ROOT / "build" / "site"
SHOWN = (
    "README.md",
    "ARCHITECTURE.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "CHANGELOG.md",
    "LICENSE",
    "docs",
    "benchmarks/*.md",
    "benchmarks/paper/*.md",
    "benchmarks/*.svg",
    "configs",
    "examples/*.py",
)
"""Documents on the site, and files that they link to."""


def gather() -> None:
    """Copy the documents and linked files into one folder."""
    shutil.rmtree(PAGES, ignore_errors=True)
    for pattern in SHOWN:
        for path in sorted(ROOT.glob(pattern)):
            place = PAGES / path.relative_to(ROOT)
            place.parent.mkdir(parents=True, exist_ok=True)
            (shutil.copytree if path.is_dir() else shutil.copy)(path, place)


def spell_out_drawings() -> None:
    """Replace Mermaid drawings by text, since a page could draw them only with an external script."""
    for path in PAGES.rglob("*.md"):
        text = path.read_text()
        if "```mermaid" in text:
            path.write_text(re.sub(r"^```mermaid\n(.*?)^```$", _arrows, text, flags=re.DOTALL | re.MULTILINE))


def _arrows(drawing: re.Match[str]) -> str:
    """One line per box with the targets of its arrows."""
    targets: dict[str, list[str]] = {}
    for box, target in re.findall(r"(\w+) --> (\w+)", drawing[1]):
        targets.setdefault(box, []).append(target)
    width = max(map(len, targets))
    return "\n".join(["```text", *(f"{box:{width}} → {', '.join(to)}" for box, to in targets.items()), "```"])


def build() -> int:
    """Run the generator; returns its exit code."""
    zensical = Path(sys.executable).with_name("zensical")
    command = [str(zensical), "build", "--strict", "--clean", "--config-file", str(ROOT / "mkdocs.yml")]
    return subprocess.run(command, cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT)}, check=False).returncode


def main() -> None:
    gather()
    spell_out_drawings()
    shutil.rmtree(SITE, ignore_errors=True)
    if code := build():
        raise SystemExit(code)
    (SITE / "demo.html").write_text(demo_page(), encoding="utf-8")
    print(f"site: {SITE.relative_to(ROOT)}/index.html")


if __name__ == "__main__":
    main()
