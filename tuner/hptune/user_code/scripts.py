"""Whole scripts of other tuners, known by their source: the master never runs a user's code."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterator, Mapping, Sequence

from ..errors import ModelFileError

_TUNERS = (
    "BayesianOptimization", "GridSearch", "Hyperband", "RandomSearch", "SklearnTuner", "Tuner",
)  # fmt: skip
"""Classes of KerasTuner that search, and ends of the names of their subclasses."""
_CALLS = {".search", ".reload", ".results_summary", ".get_best_models", ".get_best_hyperparameters"}

_SEARCHES: Mapping[str, tuple[str, ...]] = {
    "hydra": ("main",),
    "hyperopt": ("fmin",),
    "optuna": ("optimize", "create_study"),
    "ray": ("run", "Tuner", "fit", "run_experiments"),
    "skopt": ("gp_minimize", "forest_minimize", "gbrt_minimize", "dummy_minimize", "BayesSearchCV"),
    "talos": ("Scan",),
    "wandb": ("sweep", "agent"),
}
"""Other tuners, and what their searches are called."""

_PAGES = {
    "hydra": "from-hydra",
    "optuna": "from-optuna",
    "ray": "from-ray-tune",
    "wandb": "from-wandb",
}
"""Pages of the guide for them."""

_WAYS = {
    "hydra": "`python {} --multirun hydra/sweeper=hptune …` tunes it as it is",
    "optuna": "`import hptune.optuna as optuna` instead of `import optuna` lets `python {}` run it",
    "wandb": "hptune calls objective(hp, trial), or a program with --command",
}
"""What helps where no lines are to be changed one by one."""

_THEIRS: Mapping[str, Sequence[str]] = {
    "hyperopt": (
        "def objective(params):",
        'lr = params["lr"]                 # space = {"lr": hp.loguniform("lr", -9, -2)}',
        'return {"loss": loss, "status": STATUS_OK}',
        "fmin(objective, space, algo=tpe.suggest, max_evals=50)",
    ),
    "ray": (
        "def train(config):",
        'lr = config["lr"]                 # param_space={"lr": tune.loguniform(1e-4, 1e-1)}',
        'tune.report({"loss": loss})',
        "tune.Tuner(train, param_space=…).fit()",
    ),
    "skopt": (
        "def objective(params):",
        "lr, = params                      # space = [Real(1e-4, 1e-1, prior='log-uniform')]",
        "return loss",
        "gp_minimize(objective, space, n_calls=50)",
    ),
    "talos": (
        "def train(x, y, x_val, y_val, params):",
        'lr = params["lr"]                 # p = {"lr": [1e-4, 1e-3, 1e-2]}',
        "return history, model",
        "talos.Scan(x, y, p, train)",
    ),
}
"""How a script begins, gets a value, returns its result, and searches."""

_SEARCHED_BY = {
    ".fit": {"Tuner"},
    ".optimize": {"create_study", "load_study"},
    ".trials_to_run": {"open_study"},
    ".ask": {"open_study"},
}
"""Methods by which a program of hptune, or of Optuna, searches, and what makes their objects."""

_OURS = (
    "def objective(hp, trial):",
    'lr = hp.Float("lr", 1e-4, 1e-1, sampling="log")',
    "return loss                       # for each epoch: trial.report(epoch, loss=loss)",
    "hptune run FILE --trials 50       # OBJECTIVE = 'loss' in the file names the metric",
)


def is_keras_tuner_script(tree: ast.Module) -> bool:
    """Return whether a file is a script that searches with KerasTuner, and no model file.

    It is one if it imports KerasTuner (or `hptune.keras_tuner`), makes a tuner, or derives one of
    its own, and calls `search`, or what shows the results of an earlier search.
    A file with `load_data` or `objective` is one only if it searches when it is imported.
    """
    names = set(_called(tree))
    derives = {base for each in ast.walk(tree) for base in _bases(each)}
    makes = any(name.endswith(_TUNERS) for name in names | derives)
    if not (_libraries(tree) & {"keras_tuner", "kerastuner"} and makes and names & _CALLS):
        return False
    defined = {each.name for each in tree.body if isinstance(each, ast.FunctionDef)}
    has_entry = bool(defined & {"load_data", "objective"})
    return not has_entry or ".search" in set(_called(_run_at_import(tree)))


def refuse_search_at_import(tree: ast.Module, file: str) -> None:
    """Raise the error for a file that would search each time it is imported, as by its own search.

    Raises:
        ModelFileError: It would.
    """
    called, method, more = set(_called(_run_at_import(tree))), "", ""
    if is_keras_tuner_script(tree) and ".search" in called:
        method, more = ".search", "`hptune run` runs a whole script of KerasTuner as it is"
    elif libraries := _libraries(tree) & {"hptune", "optuna"}:
        found = (each for each, made in _SEARCHED_BY.items() if each in called and called & made)
        method, more = next(found, ""), "`hptune help from-optuna` has the rest"
        more = f"`python {file}` runs it as it is" if "hptune" in libraries else more
    if method:
        raise ModelFileError(
            f"{file} runs a search when it is imported; put the line with {method}(…), and what "
            f'follows from it, under `if __name__ == "__main__":`; {more}'
        )


def refuse_other_searches(tree: ast.Module, file: str) -> None:
    """Raise the error for a script of another tuner that has nothing that hptune can tune.

    Raises:
        ModelFileError: It is one; with the lines to change.
    """
    if any(_takes_hp(each) for each in ast.walk(tree)):
        return
    imported = _libraries(tree)
    called = {name.removeprefix(".") for name in _called(tree)}
    for library, searches in _SEARCHES.items():
        if library in imported and called & set(searches):
            page = f"; `hptune help {_PAGES[library]}` shows how" if library in _PAGES else ""
            if library in _WAYS:
                way = _WAYS[library].format(file)
                raise ModelFileError(f"{file} is a script of {library}, and {way}{page}.")
            pairs = zip(_THEIRS[library], _OURS, strict=True)
            changes = "\n".join(f"  - {a}\n  + {b}" for a, b in pairs).replace("FILE", file)
            raise ModelFileError(
                f"{file} is a script of {library}, and hptune calls objective(hp, trial){page}. "
                f"The lines to change, with those of an example:\n{changes}"
            )


def refuse_programs(tree: ast.Module, file: str) -> None:
    """Raise the error for a program with arguments that has nothing that hptune can tune.

    Raises:
        ModelFileError: It is one; with the command that tunes it as it is.
    """
    functions = [each for each in ast.walk(tree) if isinstance(each, ast.FunctionDef)]
    if any(_takes_hp(each) or each.name == "objective" for each in functions):
        return
    if not {"ArgumentParser", "parse_args"} & set(_called(tree)):
        return
    options = list(itertools.islice(_number_options(tree), 2)) or ["--lr"]  # two show the form
    arguments = " ".join(f"{each} {{{each.strip('-').replace('-', '_')}}}" for each in options)
    raise ModelFileError(
        f"{file} is a program with arguments, and has no objective(hp, trial). To tune it as it "
        f"is: hptune run --command 'python {file} {arguments}' --space space.toml --objective "
        "METRIC. It prints its metrics as lines of JSON (`hptune help programs`)"
    )


def _number_options(tree: ast.Module) -> Iterator[str]:
    """Yield the options of a program that take a number."""
    for each in ast.walk(tree):
        if isinstance(each, ast.Call) and getattr(each.func, "attr", "") == "add_argument":
            kinds = {ast.unparse(word.value) for word in each.keywords if word.arg == "type"}
            names = [name.value for name in each.args if isinstance(name, ast.Constant)]
            long = [name for name in names if isinstance(name, str) and name.startswith("--")]
            if kinds & {"float", "int"}:
                yield from long[:1]


def _takes_hp(node: ast.AST) -> bool:
    """Return whether this is a function for hptune: of `hp`, or a HyperModel's `build`."""
    return isinstance(node, ast.FunctionDef | ast.Lambda) and any(
        arg.arg.strip("_").startswith("hp") for arg in node.args.args
    )


def _libraries(tree: ast.AST) -> set[str]:
    return {name.partition(".")[0] for name in _imported(tree)}


def _imported(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = node.module or ""
            yield module.removeprefix("hptune.")
            yield from (alias.name for alias in node.names if module == "hptune")


def _called(tree: ast.AST) -> Iterator[str]:
    """Yield the names of what is called; of a method, with a dot before it."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if getattr(node.func.value, "id", "") != "re":  # whose `search` is another one
                yield f".{node.func.attr}"
                yield node.func.attr
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            yield node.func.id


def _bases(node: ast.AST) -> list[str]:
    return [ast.unparse(base) for base in node.bases] if isinstance(node, ast.ClassDef) else []


def is_of_program(node: ast.stmt) -> bool:
    """Return whether it is `if __name__ == "__main__":`."""
    return isinstance(node, ast.If) and "__name__" in {
        each.id for each in ast.walk(node.test) if isinstance(each, ast.Name)
    }


def _run_at_import(tree: ast.Module) -> ast.Module:
    """Return the statements that run when the file is imported, as a module.

    Those of its functions are among them that these statements call, such as `main()`.
    """
    functions = {each.name: each for each in tree.body if isinstance(each, ast.FunctionDef)}
    kept = ast.Module(
        [
            each
            for each in tree.body
            if not isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
            and not is_of_program(each)
        ],
        [],
    )
    while called := functions.keys() & set(_called(kept)):
        kept.body += [functions.pop(name) for name in sorted(called)]
    return kept
