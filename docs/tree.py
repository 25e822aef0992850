"""Writes the annotated file tree of docs/architecture.md from the first sentences of the modules' docstrings.

python docs/tree.py            # print it
python docs/tree.py --write    # renew it on the page
"""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "architecture.md"
BEGIN, END = "<!-- tree -->\n```\n", "```\n<!-- /tree -->\n"


def first_sentence(path: Path) -> str:
    """The first sentence of a module's docstring, without the full stop."""
    paragraph = (ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or "").split("\n\n")[0]
    return re.split(r"\.(?:\s|$)", " ".join(paragraph.split()), maxsplit=1)[0]


def tree() -> str:
    """A line for each Python file of the two packages; folders as lines of their own."""
    lines: list[str] = []
    for package in ("llm_envs", "learners"):
        _append_folder(ROOT / package, 0, lines)
    return "\n".join(lines) + "\n"


def _append_folder(folder: Path, depth: int, lines: list[str]) -> None:
    indent = "  " * depth
    lines.append(_line(f"{indent}{folder.name}/", first_sentence(folder / "__init__.py")))
    lines.extend(
        _line(f"{indent}  {path.name}", first_sentence(path)) for path in sorted(folder.glob("*.py")) if path.name != "__init__.py"
    )
    for inner in sorted(path.parent for path in folder.glob("*/__init__.py")):
        _append_folder(inner, depth + 1, lines)


def _line(name: str, text: str) -> str:
    return f"{name:<24}{text}"


def with_tree(page: str) -> str:
    """The page with the tree of now."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}{tree()}{END}{after}"


if __name__ == "__main__":
    if "--write" in sys.argv[1:]:
        PAGE.write_text(with_tree(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    else:
        print(tree(), end="")
