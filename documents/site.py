"""Build the site of the documents: the guide, the reference, and what is for those who change the code.

    python documents/site.py             # into build/site; any warning fails it

The documents are read as they lie in the repository, so that every link works there and on the site alike. They are put
into build/pages beside the files that they link to, and Zensical makes pages of them. It is the maintained successor of
MkDocs with Material, by the makers of the latter, and reads their configuration, so that either could take its place.
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
"""What is on the site: documents, and what they link to."""


def gather() -> None:
    """Put the documents and what they link to into one folder."""
    shutil.rmtree(PAGES, ignore_errors=True)
    for pattern in SHOWN:
        for path in sorted(ROOT.glob(pattern)):
            place = PAGES / path.relative_to(ROOT)
            place.parent.mkdir(parents=True, exist_ok=True)
            (shutil.copytree if path.is_dir() else shutil.copy)(path, place)


def spell_out_drawings() -> None:
    """Say in text what a drawing by Mermaid shows, since a page could draw it only with a program from elsewhere."""
    for path in PAGES.rglob("*.md"):
        text = path.read_text()
        if "```mermaid" in text:
            path.write_text(re.sub(r"^```mermaid\n(.*?)^```$", _arrows, text, flags=re.DOTALL | re.MULTILINE))


def _arrows(drawing: re.Match[str]) -> str:
    """One line for each box with what its arrows point to."""
    targets: dict[str, list[str]] = {}
    for box, target in re.findall(r"(\w+) --> (\w+)", drawing[1]):
        targets.setdefault(box, []).append(target)
    width = max(map(len, targets))
    return "\n".join(["```text", *(f"{box:{width}} → {', '.join(to)}" for box, to in targets.items()), "```"])


def build() -> int:
    """The exit code of the generator."""
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
    print(f"the site is in {SITE.relative_to(ROOT)}/index.html")


if __name__ == "__main__":
    main()
