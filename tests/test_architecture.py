"""Rules for imports: which folder may import which, and what is loaded when."""

from __future__ import annotations

import ast
import itertools
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import hptune
import hptune_jobqueue
from hptune.config.places import EXECUTORS
from wings import WINGS, may_import, wing

PACKAGE = Path(hptune.__file__).parent
JOBQUEUE = Path(hptune_jobqueue.__file__).parent
PLUGINS = PACKAGE.with_name("hydra_plugins")
TOP_MODULES = {"__init__", "__main__", "errors", "registry", "text", "tuner"}

FRAMEWORKS = {"tensorflow", "keras", "keras_tuner", "torch", "jax", "cupy"}
OUTSIDE_WORLD = {
    "asyncio", "concurrent", "datetime", "glob", "http", "io", "logging", "multiprocessing", "os",
    "pathlib", "queue", "random", "secrets", "select", "shutil", "signal", "socket", "sqlite3",
    "subprocess", "tempfile", "threading", "time", "urllib", "uuid",
}  # fmt: skip
"""Standard modules for files, networks, clocks, threads and randomness of their own."""


@dataclass(frozen=True, slots=True)
class Import:
    """One import statement; names are absolute, such as `hptune.core.engine.engine`."""

    importer: str
    imported: str
    in_function: bool
    for_types_only: bool

    def __str__(self) -> str:
        return f"{self.importer} imports {self.imported}"

    @property
    def top(self) -> str:
        """The imported package."""
        return self.imported.partition(".")[0]


@cache
def imports(root: Path = PACKAGE) -> list[Import]:
    """Return every import of a package; it is parsed once, and by the process that tests it."""
    found = []
    for path in sorted(root.rglob("*.py")):
        module = ".".join((root.name, *path.relative_to(root).with_suffix("").parts))
        module = module.removesuffix(".__init__")
        package = module if path.name == "__init__.py" else module.rpartition(".")[0]
        found += [*_imports_in(ast.parse(path.read_text()), module, package)]
    return found


def _imports_in(
    node: ast.AST, module: str, package: str, *, in_function: bool = False, types: bool = False
) -> Iterator[Import]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import):
            for alias in child.names:
                yield Import(module, alias.name, in_function, types)
        elif isinstance(child, ast.ImportFrom):
            parts = package.split(".")
            base = ".".join(parts[: len(parts) - child.level + 1]) if child.level else ""
            source = ".".join(part for part in (base, child.module) if part)
            for alias in child.names:
                whole = f"{source}.{alias.name}"
                is_module = _file_of(whole) is not None
                yield Import(module, whole if is_module else source, in_function, types)
        yield from _imports_in(
            child,
            module,
            package,
            in_function=in_function or isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef),
            types=types or (isinstance(child, ast.If) and "TYPE_CHECKING" in ast.dump(child.test)),
        )


def _file_of(module: str) -> Path | None:
    path = PACKAGE.parent.joinpath(*module.split("."))
    candidates = (path.with_suffix(".py"), path / "__init__.py")
    return next((each for each in candidates if each.exists()), None)


def room(module: str) -> str:
    """The room of a module of ours; empty for the package itself."""
    return module.partition(".")[2].partition(".")[0]


@cache
def ours() -> list[Import]:
    """Return the imports of modules of the package by each other."""
    return [each for each in imports() if each.top == "hptune"]


def named(rule: list[Import]) -> list[str]:
    return sorted({str(each) for each in rule})


def folder(module: str) -> str:
    """The folder that a module lies in; a folder's own `__init__` lies in the folder."""
    path = PACKAGE.parent.joinpath(*module.split("."))
    return module if path.is_dir() else module.rpartition(".")[0]


def place(imported: str, importer: str) -> str:
    """A module's place as `May import:` names it: a folder of the same room, or another room."""
    within = folder(imported).partition(".")[2] or imported.partition(".")[2]
    return within if room(imported) == room(importer) else within.partition(".")[0]


def declared(init: Path) -> set[str]:
    """Return what the docstring of a folder's `__init__` lists under `May import:`."""
    doc = ast.get_docstring(ast.parse(init.read_text())) or ""
    _, found, tail = doc.partition("May import: ")
    assert found, f"{init} does not say what the folder may import"
    sentence = re.split(r"\.(?:\s|$)", tail)[0]
    return set(re.findall(r"`([a-z_.]+)`", sentence)) - {"hptune"}


def circle(edges: set[tuple[str, str]]) -> list[str]:
    """Return names that import each other in a circle; empty if there is none."""
    graph = TopologicalSorter[str]()
    for importer, imported in edges:
        graph.add(importer, imported)
    try:
        graph.prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


FOLDERS = sorted(path.parent for path in PACKAGE.rglob("__init__.py") if path.parent != PACKAGE)


def test_imports_are_found() -> None:
    pairs = {(each.importer, each.imported) for each in imports()}
    assert ("hptune.core.engine.engine", "hptune.core.messages") in pairs
    assert ("hptune.worker.dask.plugin", "distributed") in pairs
    assert ("hptune.worker.dask.study_attempts", "hptune.worker.devices") in pairs
    assert any(each.in_function and each.top == "keras" for each in imports())


def test_few_modules_lie_at_the_top() -> None:
    assert {path.stem for path in PACKAGE.glob("*.py")} == TOP_MODULES


@pytest.mark.parametrize("path", FOLDERS, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_each_folder_imports_what_it_declares_and_nothing_else(path: Path) -> None:
    name = ".".join(path.relative_to(PACKAGE.parent).parts)
    used = {
        place(each.imported, each.importer)
        for each in ours()
        if (folder(each.importer) == name and folder(each.imported) not in (name, "hptune"))
        or (folder(each.importer) == name and each.imported.count(".") == 1)
    }
    assert used - {""} == declared(path / "__init__.py")


@pytest.mark.parametrize("path", [PACKAGE, *FOLDERS], ids=lambda path: path.name)
def test_no_circle_among_the_modules_and_folders_of_a_folder(path: Path) -> None:
    inside = ".".join(path.relative_to(PACKAGE.parent).parts) + "."

    def entry(module: str) -> str:
        return module.removeprefix(inside).partition(".")[0]

    edges = {
        (entry(each.importer), entry(each.imported))
        for each in ours()
        if each.importer.startswith(inside) and each.imported.startswith(inside)
    }
    assert circle({(a, b) for a, b in edges if a != b}) == []


def test_imports_go_downwards_in_the_list_of_the_architecture_page() -> None:
    page = (PACKAGE.parents[1] / "docs" / "architecture.md").read_text()
    listed = re.findall(r"^  ([a-z_]+)/ ", page, re.MULTILINE)
    assert set(listed) == {path.name for path in FOLDERS if path.parent == PACKAGE}

    def rises(each: Import) -> bool:
        above, below = room(each.importer), room(each.imported)
        return {above, below} <= set(listed) and listed.index(above) > listed.index(below)

    assert named([each for each in ours() if rises(each)]) == []


def test_places_that_docstrings_and_comments_name_exist() -> None:
    """Places are named as in `clusters.base`, from the package or from the file's own folder."""
    names = "|".join(sorted(path.name for path in FOLDERS if path.parent == PACKAGE))
    named_place = re.compile(rf"`(?:hptune\.)?({names})\.([a-z_]+)[`.(]")
    found, gone = 0, []
    for path in sorted(PACKAGE.rglob("*.py")):
        for place in named_place.finditer(path.read_text()):
            starts = (PACKAGE / place[1], path.parent / place[1], path.parent / f"{place[1]}.py")
            modules = [start / place[2] for start in starts[:2]]
            is_there = any(each.is_dir() or each.with_suffix(".py").is_file() for each in modules)
            found += 1
            if not is_there and not starts[2].is_file() and place[2] not in ("pem", "db"):
                gone.append(f"{path.relative_to(PACKAGE)}: {place[0]}")
    assert found > 50
    assert gone == ["keras_tuner/__init__.py: `keras_tuner.oracles`"], "that of KerasTuner"


def test_the_longest_chain_of_rooms_has_twelve() -> None:
    graph: dict[str, set[str]] = {}
    for high, low in {(room(each.importer), room(each.imported)) for each in ours()}:
        if high and low and high != low:
            graph.setdefault(high, set()).add(low)

    @cache
    def floor(name: str) -> int:
        return 1 + max(map(floor, graph.get(name, ())), default=0)

    assert max(map(floor, graph)) == 12


def test_nothing_branches_on_the_name_of_an_executor() -> None:
    """What an executor can do is in its row."""

    def is_name(node: ast.AST) -> bool:
        if isinstance(node, ast.Tuple | ast.List | ast.Set):
            return any(map(is_name, node.elts))
        return isinstance(node, ast.Constant) and node.value in EXECUTORS.built_in

    def branches(node: ast.AST) -> bool:
        if isinstance(node, ast.Compare):
            return any(map(is_name, (node.left, *node.comparators)))
        return isinstance(node, ast.MatchValue) and is_name(node.value)

    assert branches(ast.parse("a.executor in ('dask', 'x')", mode="eval").body)
    found = [
        f"{path}:{node.lineno}"
        for path in PACKAGE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if branches(node) and isinstance(node, ast.expr | ast.pattern)
    ]
    assert found == []


def test_a_circle_is_found() -> None:
    assert circle({("a", "b"), ("b", "c"), ("c", "a"), ("c", "d")})
    assert circle({("a", "b"), ("a", "c")}) == []


def test_nothing_imports_the_suites() -> None:
    rule = [e for e in ours() if room(e.imported) == "testing" and room(e.importer) != "testing"]
    assert named(rule) == []


def test_the_core_knows_nothing_of_the_outside_world() -> None:
    allowed = (sys.stdlib_module_names - OUTSIDE_WORLD) | {"numpy", "hptune"}
    rule = [
        each
        for each in imports()
        if room(each.importer) == "core"
        and each.top not in allowed
        and (each.importer, each.imported) != ("hptune.core.clock", "time")
    ]
    assert named(rule) == []


def test_the_engine_never_sees_the_clock() -> None:
    rule = [each for each in ours() if each.imported == "hptune.core.clock"]
    assert not [each for each in rule if room(each.importer) == "core"]


def test_samplers_are_pure_and_know_nothing_of_each_other() -> None:
    samplers = {
        ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)
        for path in (PACKAGE / "samplers").rglob("*.py")
        if "(Sampler):" in path.read_text()
    }
    assert {"hptune.samplers.grid", "hptune.samplers.random_search"} <= samplers
    rule = [
        each
        for each in imports()
        if each.importer.startswith("hptune.samplers.")
        and each.importer != "hptune.samplers.registry"
        and (each.imported in samplers or each.top in OUTSIDE_WORLD)
    ]
    assert named(rule) == []


def test_pruners_are_pure_and_the_core_knows_none() -> None:
    rule = [
        each
        for each in imports()
        if (room(each.importer) == "pruners" and each.top in OUTSIDE_WORLD)
        or (room(each.importer) == "core" and room(each.imported) in ("pruners", "samplers"))
    ]
    assert named(rule) == []


def test_executors_and_ledger_know_messages_and_never_the_engine() -> None:
    rule = [
        each
        for each in ours()
        if room(each.importer) in ("executors", "storage", "worker", "training")
        and each.imported.startswith(
            ("hptune.core.engine", "hptune.core.packing", "hptune.core.sampler")
        )
    ]
    assert named(rule) == []


def test_what_runs_attempts_knows_the_users_code_and_never_the_settings() -> None:
    runners = [
        each for each in ours() if room(each.importer) in ("executors", "worker", "training")
    ]
    assert {"user_code", "core"} <= {room(each.imported) for each in runners}
    assert named([each for each in runners if room(each.imported) in ("config", "master")]) == []


def test_dask_is_known_to_those_who_need_it() -> None:
    users = {each.importer for each in imports() if each.top in ("distributed", "dask")}
    assert users == {
        "hptune.executors.dask_client",
        "hptune.executors.local_cluster",
        "hptune.clusters.scheduler",
        "hptune.clusters.batch_systems",  # reads dask-jobqueue's configuration
        "hptune.worker.dask.dask_settings",
        "hptune.worker.dask.encryption",
        "hptune.worker.dask.calls",
        "hptune.worker.dask.plugin",
        "hptune.worker.dask.worker",
        "hptune.worker.dask.worker_server",
        "hptune.doctor.workers",
    }


def test_frameworks_are_imported_where_they_are_used_and_only_there() -> None:
    """Inside functions; or at once, by modules of training that load only inside functions."""
    at_home = (
        "hptune.worker.forkserver.child",
        "hptune.worker.forkserver.server",
        "hptune.keras_tuner.oracle_settings",
        "hptune.study.study",
    )
    rule = [
        each
        for each in imports()
        if each.top in FRAMEWORKS
        and not each.for_types_only
        and room(each.importer) != "optimizers"  # which only model files import
    ]
    assert rule, "nothing imports a framework: the rule checks nothing"
    rooms = [each for each in rule if room(each.importer) != "training"]
    assert named([e for e in rooms if e.importer not in at_home or not e.in_function]) == []
    at_once = {each.importer for each in rule if not each.in_function}
    assert "hptune.training.strategies.torch_processes" in at_once
    loading = [e for e in ours() if not (e.in_function or e.for_types_only)]
    with_them = set(at_once)  # and the modules of training that load one of these
    while (
        more := {
            each.importer
            for each in loading
            if each.imported in with_them and room(each.importer) == "training"
        }
        - with_them
    ):
        with_them |= more
    outside = [e for e in loading if e.imported in with_them and e.importer not in with_them]
    assert named(outside) == []
    assert "hptune.training.keras.objective" not in with_them, "the fork server loads it"


def test_the_job_queue_knows_nothing_of_the_tuner() -> None:
    found = imports(JOBQUEUE)
    edges = {(each.importer, each.imported) for each in found}
    assert ("hptune_jobqueue.sizing", "hptune_jobqueue.nodes") in edges
    assert named([each for each in found if each.top == "hptune"]) == []


def test_the_plug_in_imports_hydra_alone_when_an_application_starts() -> None:
    found = [each for each in imports(PLUGINS) if not each.in_function]
    assert {each.top for each in found} - sys.stdlib_module_names == {"hydra", "omegaconf"}
    users = {room(each.importer) for each in imports() if each.top in ("hydra", "omegaconf")}
    assert users == {"hydra"}


def test_no_circle_among_the_modules_of_the_job_queue() -> None:
    found = [
        each for each in imports(JOBQUEUE) if each.top == "hptune_jobqueue" and room(each.imported)
    ]
    edges = {(each.importer, each.imported) for each in found}
    assert circle({(a, b) for a, b in edges if a != b}) == []


def test_only_the_job_script_knows_dask_jobqueue() -> None:
    users = {e.importer for e in imports() + imports(JOBQUEUE) if e.top in ("dask_jobqueue",)}
    assert users <= {"hptune_jobqueue.script"}


# --- the kernel and its wings ---------------------------------------------------------------


def test_the_kernel_imports_wings_through_their_doors_only() -> None:
    found = [each for each in imports() if not each.for_types_only]
    rule = [
        each
        for each in found
        if not may_import(each.importer, each.imported, in_function=each.in_function)
    ]
    assert named(rule) == []
    passed = {(wing(each.imported), each.importer) for each in found if not wing(each.importer)}
    doors = {(name, door) for name, each in WINGS.items() for door in each.doors | each.open_doors}
    assert doors <= passed, "a door that is no longer used goes"


def test_an_import_beside_the_doors_is_found() -> None:
    page, run = "hptune.reporting.html.report", "hptune.master.run"
    assert not may_import(run, page, in_function=True), "it is no door"
    split = "hptune.master.chosen_split"
    assert may_import(run, split, in_function=True)
    assert not may_import(run, split, in_function=False), "the door loads it when it is needed"
    assert not may_import("hptune.doctor.report", page, in_function=True), "it needs no page"


def test_every_module_of_a_wing_exists() -> None:
    known = {each.importer for root in (PACKAGE, PLUGINS, JOBQUEUE) for each in imports(root)}
    for each in itertools.chain.from_iterable(one.modules for one in WINGS.values()):
        assert any(f"{module}.".startswith(f"{each}.") for module in known), each


# --- what is loaded -------------------------------------------------------------------------


def loaded_after(script: str, tmp_path: Path) -> set[str]:
    """Return the packages that a script has loaded at its end, and all modules of ours."""
    path = tmp_path / "script.py"
    path.write_text(textwrap.dedent(script) + "\nimport sys\nprint('loaded', *sys.modules)\n")
    done = subprocess.run(
        [sys.executable, str(path)],
        check=False,
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    modules = set(done.stdout.splitlines()[-1].split()) - {"loaded"}
    ours = {each for each in modules if each.startswith(("hptune.", "hptune_jobqueue"))}
    return {each.partition(".")[0] for each in modules} | ours


HEAVY = FRAMEWORKS | {
    *("distributed", "dask", "pandas", "rich", "bokeh", "sklearn", "joblib", "matplotlib")
}


@pytest.mark.parametrize(
    "script",
    [
        "import hptune",
        "import hptune; hptune.Tuner, hptune.Study, hptune.Resources, hptune.report",
        "import hptune.optuna",
        """
        import contextlib
        from hptune.cli import main
        with contextlib.suppress(SystemExit):
            main(["--help"])
        import sys
        assert not {"numpy", "sqlite3", "email", "hptune.reporting.table"} & sys.modules.keys()
        """,
        """
        import contextlib
        from hptune.cli import main
        with contextlib.suppress(SystemExit):
            main(["run", "--help"])
        """,
        """
        import contextlib, pathlib
        from hptune.cli import main
        pathlib.Path("model.py").write_text("def objective(hp, trial)")
        with contextlib.suppress(SystemExit):
            main(["run", "model.py"])
        import sys
        assert not {"numpy", "sqlite3"} & sys.modules.keys()
        """,
    ],
)
def test_importing_and_asking_for_help_load_nothing_heavy(script: str, tmp_path: Path) -> None:
    loaded = loaded_after(script, tmp_path)
    assert "hptune" in loaded
    assert loaded & HEAVY == set()


@pytest.mark.parametrize(
    "call",
    [
        ("ask", "study"),
        ("tell", "study", "0", "loss=0.5"),
        ("report-step", "study", "0", "--step", "1", "loss=0.5"),
    ],
    ids=lambda call: call[0],
)
def test_calls_of_programs_load_what_they_use(call: tuple[str, ...], tmp_path: Path) -> None:
    space = {"x": hptune.Float(0.0, 1.0)}
    hptune.open_study(tmp_path / "study", space, "loss:min", search="tpe").ask()
    script = f"""
    from hptune.cli import main
    try:
        main({list(call)})
    except SystemExit as end:
        assert not end.code, end.code
    """
    loaded = loaded_after(script, tmp_path)
    assert "hptune.ask_tell" in loaded
    assert ("numpy" in loaded) == (call[0] == "ask"), "only a suggestion needs it"
    views = {each for each in loaded if each.startswith(("hptune.reporting", "hptune.study"))}
    plans = {"hptune.ask_tell.study", "hptune.cli.options", "hptune.master.plan"}
    assert loaded & (HEAVY | plans | views | {"asyncio", "ssl", "cryptography"}) == set()


def test_a_study_says_that_it_reads_the_model_before_it_loads_anything_heavy(
    tmp_path: Path,
) -> None:
    (tmp_path / "model.py").write_text("def objective(hp, trial):\n    return 0\n")
    script = """
    import sys
    from hptune.master.workforce import Workforce
    from hptune.reporting.terminal.plain import PlainProgress
    noted = []
    PlainProgress.busy = lambda self, words: noted.append(words)
    Workforce.__enter__ = lambda self: sys.exit()
    from hptune.cli import main
    try:
        main(["run", "model.py", "--search", "bayesian", "--study", "study"])
    except SystemExit:
        assert "reading model.py" in noted[0]
    """
    loaded = loaded_after(script, tmp_path)
    assert "hptune" in loaded
    assert loaded & HEAVY == set()


def test_a_status_with_its_answers_loads_no_scipy(tmp_path: Path) -> None:
    """Which takes longer to import than the status of thousands of trials to make."""
    script = """
    import sys
    import numpy as np
    from hptune.core.space.space import FloatParameter, SearchSpace
    from hptune.core.trial import Direction
    from hptune.reporting.results.importance import estimated
    space = SearchSpace((FloatParameter("x", 0.0, 1.0), FloatParameter("y", 0.0, 1.0)))
    trials = [space.sample(np.random.default_rng(number)) for number in range(40)]
    assert estimated(space, [(each, each["x"]) for each in trials], Direction.MIN)
    """
    assert "scipy" not in loaded_after(script, tmp_path)


def test_a_whole_study_leaves_the_master_without_frameworks_and_wings(tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text(
        "def objective(hp, trial):\n    return hp.Float('x', 0.0, 1.0)\n"
    )
    script = """
    from hptune.cli import main
    try:
        main(["run", "model.py", "--trials", "3", "--seed", "1", "--study", "study"])
    except SystemExit as end:
        assert not end.code, end.code
    """
    loaded = loaded_after(script, tmp_path)
    assert {"hptune", "distributed"} <= loaded
    assert loaded & (FRAMEWORKS | {"pandas", "rich", "sklearn"}) == set()
    assert (tmp_path / "study" / "study.db").exists()
    rare = ("hptune.keras_tuner", "hptune.master.earlier", "hptune.samplers.adapters")
    of_wings = {each for each in loaded if not each.startswith("hptune.cli.")} & {
        each
        for each in loaded
        if wing(each) in ("scaling", "slurm", "doctor", "optimizers", "testing")
        or each.startswith(rare)
    }
    assert of_wings == set()
