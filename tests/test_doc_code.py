"""The code of the documentation: it compiles, its commands exist, and it runs in a page's order.

Comments before a block say what a reader does not see: `<!-- not run: REASON -->` for code that
cannot run here, which is compiled only and counted, and `<!-- setup` with code that comes first.
"""

from __future__ import annotations

import ast
import contextlib
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path

import click
import pytest

from hptune.cli import main
from hptune.core.attempt import Cause
from hptune.core.messages import FinishReason
from hptune.errors import UsageError
from hptune.study.study import Study
from hptune_jobqueue.config import Shape

ROOT = Path(__file__).parents[1]
PAGES = sorted(
    (ROOT / "README.md", *ROOT.glob("docs/*.md"), *ROOT.glob("docs/guide/*.md"),
     *ROOT.glob("docs/reference/*.md"), *ROOT.glob("examples/**/README.md"))
)  # fmt: skip
BLOCK = re.compile(
    r"^(?:<!-- not run: (?P<reason>[^\n]*) -->\n)?```(?P<language>\w*)\n(?P<code>.*?)^```$"
    r"|^<!-- setup (?P<setup>\w+)\n(?P<hidden>.*?)^-->$",
    re.MULTILINE | re.DOTALL,
)
FILE = re.compile(r"# ([\w/]+\.(?:py|toml))\b")
"""The first line of a block that is a file of the reader's."""
LANGUAGES = {"python", "sh", "console", "toml", "yaml", "text", "json", "dockerfile", "sql"}
SHORTER = (
    (r"--trials \d+", "--trials 3"),
    (r"(hptune run model\.py)(?=  #)", r"\1 --trials 3"),
    (r"\b((?:max_|n_)?trials=)\d+", r"\g<1>3"),
    (r"--epochs \d+", "--epochs 4"),
    (r"\b(EPOCHS = |epochs=)\d+", r"\g<1>6"),
    (r"\bDIR\b", "$(ls -td studies/* | head -1)"),
)
"""What makes the examples short when they are run, and names their newest study."""
WITH_STUDY = re.compile(r"\.(fit|search)\(|\b(run_program|Study)\(|\bstudies/")
"""A block that needs a study: for `make test-docs`."""
NOT_RUN = {
    "GPUs": 2, "PyTorch's trainers": 3, "Ray Tune": 1, "W&B": 1,
    "a Ray cluster": 1, "a Slurm cluster": 10,
    "a batch system": 7, "a download": 2, "a module of yours": 1, "a release": 2,
    "a running study": 3, "a script of yours": 2, "a session": 5, "an environment of yours": 1,
    "an installation": 10, "containers": 12, "counters of energy": 1, "long trainings": 6,
    "mail": 1, "several machines": 3, "the tests themselves": 2,
}  # fmt: skip
"""How many blocks cannot run in a test, by what they need."""


@dataclass(frozen=True, slots=True)
class Block:
    """Code of a page: `reason` says why it cannot run here, `is_setup` whether it is hidden."""

    line: int
    language: str
    code: str
    reason: str
    is_setup: bool


def blocks(page: Path) -> Iterator[Block]:
    text = page.read_text()
    for found in BLOCK.finditer(text):
        line = text.count("\n", 0, found.start()) + 1
        language, code = found["language"], found["code"]
        if found["setup"]:
            language, code = found["setup"], found["hidden"]
        reason = found["reason"] or ("a session" if language == "console" else "")
        yield Block(line, language, code, reason, found["setup"] is not None)


def commands(code: str, *, is_session: bool) -> Iterator[list[str]]:
    """Yield the words of each command of hptune's in a shell block."""
    for line in code.replace("\\\n", " ").splitlines():
        if is_session and not re.match(r"\w*\$ ", line):
            continue
        words = shlex.split(line.partition("$ ")[2] if is_session else line, comments=True)
        while words and re.fullmatch(r"[A-Z_]+=.*", words[0]):
            del words[0]
        del words[: words[:1] == ["exec"]]
        if words and Path(words[0]).name == "hptune" and len(words) > 1:
            yield [re.sub(r"\$[A-Z]\w*", "1", word) for word in words[1:]]


def check_command(words: list[str]) -> None:
    """Parse a command line, as click does before it runs a command."""
    command: click.Command = main
    context = click.Context(main, info_name="hptune")
    while isinstance(command, click.Group):
        name, *words = words
        assert name in command.commands, name
        command = command.commands[name]
        if words == ["--help"]:
            return
        if not isinstance(command, click.Group):
            command.make_context(name, list(words), parent=context)


def faults(page: Path) -> list[str]:
    """Return what is wrong with the code of a page, without running it."""
    found = []
    for block in blocks(page):
        place = f"{page.name}:{block.line}"
        if block.language not in LANGUAGES:
            found.append(f"{place}: the block names no language that is known")
        try:
            if block.language == "python":
                compile(block.code, place, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
            elif block.language == "toml":
                tomllib.loads(block.code)
            elif block.language in ("sh", "console") and block.reason != "an installation":
                for words in commands(block.code, is_session=block.language == "console"):
                    check_command(words)
        except (SyntaxError, ValueError, click.ClickException, UsageError, AssertionError) as error:
            found.append(f"{place}: {getattr(error, 'message', error)}")
    return found


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the working directory, with the files that options read at once."""
    (tmp_path / "studies/model-1").mkdir(parents=True)
    for name in ("study.db", "lock"):
        (tmp_path / "studies/model-1" / name).touch()
    (tmp_path / "known.csv").write_text("learning_rate\n0.001\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_code_compiles_and_commands_exist(page: Path, folder: Path) -> None:
    del folder
    assert faults(page) == []


def test_faults_are_found(folder: Path) -> None:
    page = folder / "page.md"
    wrong = (("", "x"), ("python", "def f(:"), ("sh", "X=1 hptune run m.py --trails 3"),
             ("console", "$ hptune rnu m.py"), ("toml", "a = "),
             ("sh", "hptune list --color"), ("sh", "exec ~/bin/hptune worke x"))  # fmt: skip
    fences = [f"```{language}\n{code}\n```\n" for language, code in wrong]
    page.write_text("<!-- not run: no reason -->\n" + "\nwords\n".join(fences))
    lines = [int(each.split(":")[1]) for each in faults(page)]
    assert lines == [1, *range(7, 36, 5)][: len(wrong)]


def test_what_cannot_run_is_counted() -> None:
    found = Counter(each.reason for page in PAGES for each in blocks(page) if each.reason)
    assert found == Counter(NOT_RUN)


def shortened(block: Block) -> str:
    """Return the code of a block with fewer trials and epochs, at its lines of the page."""
    code = block.code
    for long, short in () if block.is_setup else SHORTER:
        code = re.sub(long, short, code)
    return "\n" * block.line + code


def quick_script(page: Path) -> tuple[str, int]:
    """Return a Python script with the blocks of a page that need no study, and their number.

    Of the others it has the imports; what uses a name that one of them defines is left out too.
    """
    lines = [f"page, names = {page.name!r}, {{'__name__': 'page'}}"]
    absent: set[str] = set()
    count = 0
    for block in blocks(page):
        if block.reason or block.language != "python":
            continue
        code = shortened(block)
        tree = ast.parse(code)
        names = [node for node in ast.walk(tree) if isinstance(node, ast.Name)]
        stored = {node.id for node in names if isinstance(node.ctx, ast.Store)}
        at_once = [
            each for each in tree.body if not isinstance(each, ast.FunctionDef | ast.ClassDef)
        ]
        needs_study = WITH_STUDY.search(ast.unparse(ast.Module(at_once, [])))
        if needs_study or absent & {node.id for node in names} - stored:
            absent |= stored
            imports = [each for each in at_once if isinstance(each, ast.Import | ast.ImportFrom)]
            code = "\n".join(map(ast.unparse, imports))
        else:
            count += 1
            if file := FILE.match(block.code):
                lines.append(f"open({file[1]!r}, 'w').write({code!r})")
        lines.append(f"exec(compile({code!r}, page, 'exec'), names)")
    return "\n".join(lines), count


def script(page: Path) -> str:
    """Return a Python script that runs the code of a page in its order."""
    lines = ["import subprocess", f"page = {page.name!r}"]
    for block in blocks(page):
        code = shortened(block)
        file = FILE.match(block.code)
        if block.reason or block.language not in ("python", "sh", "toml"):
            continue
        if file:
            lines.append(f"open({file[1]!r}, 'w').write({code!r})")
        elif block.language == "python":
            lines.append(f"exec(compile({code!r}, page, 'exec'))")
        elif block.language == "sh":
            words = code.strip("\n")
            lines.append(f"print({words!r}, flush=True)")
            lines.append(f"subprocess.run(['bash', '-e', '-u', '-c', {words!r}], check=True)")
    return "\n".join(lines)


RUN = [page for page in PAGES if script(page).count("\n") > 1]


RUN_ALL = """
import os, runpy, sys

root = os.getcwd()
for folder in sys.argv[1:]:  # a page does not see the modules of another
    files = {name: getattr(each, "__file__", None) or "" for name, each in sys.modules.items()}
    for name in [name for name, file in files.items() if file.startswith(root)]:
        del sys.modules[name]
    sys.path[0] = os.path.join(root, folder)
    os.chdir(sys.path[0])
    runpy.run_path("page.py")
"""


def test_blocks_that_need_no_study_run(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    quick = [quick_script(page) for page in RUN]
    assert sum(count for _, count in quick) >= 60
    for number, (code, _) in enumerate(quick):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / "examples").symlink_to(tmp_path / "examples")
        (folder / "page.py").write_text(code)
    # In one process, as importing Keras takes longer than all blocks.
    folders = [str(number) for number in range(len(quick))]
    ended = subprocess.run(
        [sys.executable, "-c", RUN_ALL, *folders],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr[-6000:]


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("page", RUN, ids=lambda path: str(path.relative_to(ROOT)))
def test_code_runs_in_the_order_of_its_page(page: Path, tmp_path: Path) -> None:
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    (tmp_path / "page.py").write_text(script(page))
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    with subprocess.Popen(
        [sys.executable, "page.py"],
        cwd=tmp_path,
        env=os.environ | {"PATH": path, "PYTHONPATH": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as running:
        try:
            said, _ = running.communicate(timeout=800)
        finally:  # what the page has started ends with it
            with contextlib.suppress(ProcessLookupError):
                os.killpg(running.pid, signal.SIGTERM)
    assert running.returncode == 0, said[-6000:]


TROUBLESHOOTING = ROOT / "docs/guide/troubleshooting.md"


def words_in(heading: str, column: int = 0) -> set[str]:
    """Return what a column of a table on the page of troubleshooting quotes."""
    section = TROUBLESHOOTING.read_text().partition(f"## {heading}\n")[2].partition("\n## ")[0]
    rows = [line.split(" | ") for line in section.splitlines() if line.startswith("| ")]
    return {words for row in rows for words in re.findall(r"`([^`]+)`", row[column])}


def test_each_end_of_a_run_and_of_a_trial_has_its_entry() -> None:
    assert words_in("A run ended", column=1) == {*FinishReason}
    by_design = {Cause.RETURNED, Cause.STOPPED, Cause.PRUNED, Cause.PAUSED}
    of_studies = {Cause.UNKNOWN_METRIC, Cause.NO_ROOM}
    assert words_in("A trial ended") == {*Cause} - by_design - of_studies


def test_the_messages_that_are_explained_exist() -> None:
    code = "\n".join(path.read_text() for path in (ROOT / "tuner").rglob("*.py"))
    code = re.sub(r"\"\n\s*f?\"", "", code)  # a text over several lines
    tables = ("A run ended", "A command refuses", "Workers do not come")
    quoted = {words for table in tables for words in words_in(table)}
    assert len(quoted) > 20
    # "…" stands for what differs, and the first letter of a line for a small one.
    parts = {part.strip() for words in quoted for part in words.split("…")}
    assert [part for part in parts if re.sub("^The ", "the ", part) not in code] == []


def test_the_gallery_has_every_figure() -> None:
    shown = re.findall(r"\.(plot_\w+)\(", (ROOT / "docs/guide/gallery.md").read_text())
    assert {*shown} == {name for name in dir(Study) if name.startswith("plot_")}


def test_the_keys_of_slurm_toml_are_described() -> None:
    page = (ROOT / "docs/guide/slurm-toml.md").read_text()
    cells = re.findall(r"^\| (`.*?) \|", page, re.MULTILINE)
    assert {key for cell in cells for key in re.findall(r"`(\w+)`", cell)} == {
        each.name for each in fields(Shape)
    }


ARCHITECTURE, DEVELOPMENT = ROOT / "docs/architecture.md", ROOT / "docs/development.md"


def test_the_way_of_a_trial_leads_through_functions_that_exist() -> None:
    stops = re.findall(r"^[A-Z ]{8} +\d+ (\S+\.py) +(\S+)", ARCHITECTURE.read_text(), re.MULTILINE)
    assert len(stops) > 30
    assert [
        stop for stop in stops if stop[1] not in defined_in(ROOT / "tuner/hptune" / stop[0])
    ] == []


def defined_in(file: Path) -> set[str]:
    """Return the functions and classes of a module, and their methods with the class's name."""
    body = ast.parse(file.read_text()).body
    found = {each.name for each in body if isinstance(each, ast.FunctionDef | ast.ClassDef)}
    for node in body:
        if isinstance(node, ast.ClassDef):
            methods = (each for each in node.body if isinstance(each, ast.FunctionDef))
            found |= {f"{node.name}.{each.name}" for each in methods}
    return found


@pytest.mark.parametrize("page", [ARCHITECTURE, DEVELOPMENT], ids=lambda page: str(page.name))
def test_the_modules_that_a_page_names_exist(page: Path) -> None:
    folders = (ROOT, ROOT / "tuner/hptune", ROOT / "jobqueue")
    named = set(re.findall(r"`([\w.-]+(?:/[\w.-]+)+\.py)`", page.read_text()))
    assert [each for each in named if not any((f / each).exists() for f in folders)] == []
