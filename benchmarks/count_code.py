"""Print how large the code is and how its rooms hang together: `make lines`.

Lines of code are lines without blanks, docstrings and comments. A room is a folder or a module at
the top of `hptune`. An arrow leads to a room that is imported; floors are the longest chain.
"""

from __future__ import annotations

import ast
import io
import sys
import tokenize
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests" / "support"))

from wings import wing

PACKAGES = (
    ROOT / "tuner" / "hptune",
    ROOT / "tuner" / "hydra_plugins",
    ROOT / "jobqueue" / "hptune_jobqueue",
)
NO_CODE = {
    tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT,
    tokenize.ENDMARKER,
}  # fmt: skip
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def lines_of_code(source: str, tree: ast.Module) -> set[int]:
    """Return the numbers of the lines that hold code."""
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in NO_CODE:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(tree):
        if isinstance(node, DOCUMENTED) and ast.get_docstring(node, clean=False) is not None:
            first = node.body[0]
            lines -= set(range(first.lineno, (first.end_lineno or first.lineno) + 1))
    return lines


def imported(tree: ast.Module, path: Path) -> Iterator[Path]:
    """Yield the modules of ours that a module imports, also those for types only."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.level:
            base = path.parents[node.level - 1].joinpath(*(node.module or "").split("."))
            for name in node.names:
                targets = (base / f"{name.name}.py", base / name.name / "__init__.py")
                whole = (*targets, base.with_suffix(".py"), base / "__init__.py")
                yield from [each for each in whole if each.exists()][:1]


def floors(arrows: set[tuple[str, str]]) -> int:
    """Return the length of the longest chain of rooms, each of which imports the next."""

    @cache
    def height(name: str) -> int:
        return 1 + max((height(low) for high, low in arrows if high == name), default=0)

    return max((height(high) for high, _ in arrows), default=0)


def scripts(package: Path) -> int:
    """Return the lines of scripts, styles and markup, without blanks."""
    files = [path for path in package.rglob("*.*") if path.suffix in {".js", ".css", ".html"}]
    return sum(bool(line.strip()) for path in files for line in path.read_text().splitlines())


def main() -> None:
    per_folder: Counter[str] = Counter()
    per_wing: Counter[str] = Counter()
    arrows: set[tuple[str, str]] = set()
    functions: list[tuple[int, str]] = []
    for package in PACKAGES:
        for path in sorted(package.rglob("*.py")):
            source = path.read_text(encoding="utf-8")
            tree = ast.parse(source)
            lines = lines_of_code(source, tree)
            per_folder[str(path.parent.relative_to(package.parent))] += len(lines)
            module = ".".join(path.relative_to(package.parent).with_suffix("").parts)
            per_wing[wing(module.removesuffix(".__init__")) or "kernel"] += len(lines)
            for node in ast.walk(tree):
                if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                    within = range(node.lineno, (node.end_lineno or node.lineno) + 1)
                    place = f"{path.relative_to(ROOT)}:{node.lineno} {node.name}"
                    functions.append((len(lines.intersection(within)), place))
            for target in imported(tree, path) if package.name == "hptune" else ():
                ends = [
                    each.relative_to(package).with_suffix("").parts[0] for each in (path, target)
                ]
                if ends[0] != ends[1] and "__init__" not in ends:
                    arrows.add((ends[0], ends[1]))
    for name, lines_in_folder in sorted(per_folder.items()):
        print(f"{lines_in_folder:6} {name}")
    print()
    for name, lines_in_wing in per_wing.most_common():
        print(f"{lines_in_wing:6} {name}")
    print()
    functions.sort()
    print(f"{per_folder.total():6} lines of code")
    print(f"{sum(map(scripts, PACKAGES)):6} lines of script, style and markup of the pages")
    print(f"{len({room for arrow in arrows for room in arrow}):6} rooms of hptune")
    print(f"{len(arrows):6} arrows between rooms")
    print(f"{floors(arrows):6} floors")
    print(f"{functions[int(len(functions) * 0.99)][0]:6} lines in a function at p99")
    print(f"{functions[-1][0]:6} lines in the longest function, {functions[-1][1]}")


if __name__ == "__main__":
    main()
