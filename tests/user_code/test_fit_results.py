"""What the source of a user's `fit` says about its result."""

from __future__ import annotations

import linecache
from typing import Any

import pytest

from hptune.user_code.fit_results import FitResult, result_of


def made(body: str) -> Any:
    text = "def fit(self, hp, model, *args, **kwargs):\n    " + body
    file = f"<fit {len(linecache.cache)}>"
    linecache.cache[file] = len(text), None, text.splitlines(keepends=True), file
    names: dict[str, Any] = {}
    exec(compile(text, file, "exec"), names)
    return names["fit"]


@pytest.mark.parametrize(
    ("body", "result"),
    [
        ("return model.fit(*args, **kwargs)", FitResult.HISTORY),
        ("history = model.fit(*args)\n    print(history)\n    return history", FitResult.HISTORY),
        ("history = model.fit(*args)\n    return history.history", FitResult.HISTORY),
        ("return super().fit(hp, model, *args)", FitResult.HISTORY),
        ("def inner(): return 1\n    return model.fit(*args)", FitResult.HISTORY),
        ("history: History = model.fit(*args)\n    return history", FitResult.HISTORY),
        ("h = None\n    for _ in range(2):\n        h = model.fit()\n    return h",
         FitResult.HISTORY),
        ("self.history = model.fit(*args)\n    return self.history", FitResult.HISTORY),
        ("if h := model.fit(*args):\n        return h", FitResult.HISTORY),
        ("return None", FitResult.METRICS),
        ("return 0.5", FitResult.NUMBER),
        ("return min(model.fit(*args).history['val_loss'])", FitResult.NUMBER),
        ("h = model.fit(*args)\n    h = h.history['loss'][-1]\n    return h", FitResult.NUMBER),
        ("return model.evaluate(*args)[1]", FitResult.NUMBER),
        ("return [1.0, 2.0]", FitResult.NUMBER),
        ("return {'f1': 1.0}", FitResult.METRICS),
        ("result = {}\n    result['f1'] = 1.0\n    return result", FitResult.METRICS),
        ("return dict(f1=1.0)", FitResult.METRICS),
        ("return model.evaluate(*args, return_dict=True)", FitResult.METRICS),
        ("model.fit(*args)", FitResult.METRICS),
    ],
)  # fmt: skip
def test_the_source_says_what_is_returned(body: str, result: FitResult) -> None:
    assert result_of(made(body)) is result


def test_a_function_without_source_is_unknown() -> None:
    assert result_of(print) is FitResult.METRICS
    assert result_of(eval("lambda hp: 1")) is FitResult.METRICS
