"""What a `fit` of the user's own returns, by its source."""

from __future__ import annotations

import ast
import enum
import inspect
import textwrap
from collections.abc import Callable, Iterator
from typing import Any


class FitResult(enum.StrEnum):
    """Kind of result; it decides what is optimised if the user names no objective."""

    HISTORY = "History"
    """What Keras's own `fit` returns: the metrics of its epochs."""
    NUMBER = "number"
    """Minimised, under the name `RETURNED`."""
    METRICS = "metrics"
    """A dict, or unknown: metrics that no epoch need have reported."""


RETURNED = "objective"
"""Name of a number that a `fit` returns if the user names no objective, as in KerasTuner."""


def result_of(fit: Callable[..., Any]) -> FitResult:
    """Return what a function returns: a History if each of its results is that of a `.fit(…)`.

    A function without source is unknown. Anything that is neither a History nor a dict counts as
    a number: if it is a History after all, the trial says so, while a number that is taken for the
    value of another metric may be optimised in the wrong direction.
    """
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(inspect.unwrap(fit))))
    except (OSError, TypeError, SyntaxError):
        return FitResult.METRICS
    function = next((each for each in tree.body if isinstance(each, ast.FunctionDef)), tree)
    assigned: dict[str, list[ast.expr]] = {}
    returned: list[ast.expr] = []
    for node in _of_function(function):
        if isinstance(node, ast.Assign | ast.AnnAssign | ast.NamedExpr) and node.value is not None:
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                assigned.setdefault(ast.unparse(target), []).append(node.value)
        elif isinstance(node, ast.Return) and node.value is not None:
            returned.append(node.value)
    values = [
        one
        for each in returned
        for name in [ast.unparse(each)]
        for one in assigned.get(name) or assigned.get(name.removesuffix(".history"), [each])
        if not (isinstance(one, ast.Constant) and one.value is None)  # as before a loop
    ]
    if values and all(_calls(value, "fit") for value in values):
        return FitResult.HISTORY
    return FitResult.METRICS if not values or any(map(_is_dict, values)) else FitResult.NUMBER


def _of_function(node: ast.AST) -> Iterator[ast.AST]:
    for each in ast.iter_child_nodes(node):
        if not isinstance(each, ast.FunctionDef | ast.Lambda | ast.ClassDef):
            yield each
            yield from _of_function(each)


def _is_dict(node: ast.expr) -> bool:
    if isinstance(node, ast.Call) and any(
        keyword.arg == "return_dict" for keyword in node.keywords
    ):
        return True  # of model.evaluate
    return isinstance(node, ast.Dict | ast.DictComp) or _calls(node, "dict")


def _calls(node: ast.expr, name: str) -> bool:
    if not isinstance(node, ast.Call):
        return False
    called = node.func
    return name == (called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", ""))
