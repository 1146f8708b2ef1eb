"""What hints repeat of the user's call."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from hptune.training.hyperparameters import HyperParameters
from hptune.user_code.user_errors import first_argument, one_line


class Digits:
    def __init__(self, classes: int) -> None:
        self.classes = classes


def called(*_: object, **__: object) -> str:
    frame = inspect.currentframe()
    return first_argument(frame and frame.f_back)


def test_the_first_argument_is_repeated_as_it_is_written() -> None:
    found = called(Digits(classes=10), 2)
    assert found == "Digits(classes=10)"
    several = [called(
        Digits(
            classes=5
        ),
        objective="ä", )]  # fmt: skip
    assert several == ["Digits(classes=5)"]


@pytest.mark.parametrize("call", ["called()", "called('" + 70 * "a" + "')", "called('source')"])
def test_what_cannot_be_repeated_is_left_out(call: str) -> None:
    assert eval(call) == "..."


def test_a_relative_import_is_answered_with_an_absolute_one() -> None:
    with pytest.raises(ImportError) as raised:
        exec("from .layers import Block", {"__name__": "model", "__package__": ""})
    assert "import a module beside it by its name, as in `from layers import" in one_line(
        raised.value
    )
    assert "beside it" not in one_line(ImportError("cannot import name 'x' from 'y'"))


class Silent(Exception):
    def __str__(self) -> str:
        raise RuntimeError


def refused_argument(name: str) -> TypeError:
    """Return the error of an `hp` that is given an argument which it does not take."""
    given: dict[str, Any] = {name: True}
    with pytest.raises(TypeError) as caught:
        HyperParameters().Float("rate", 0.1, 1.0, **given)
    return caught.value


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (SystemExit(0), "SystemExit: 0; sys.exit was called: put what runs the file as a program"),
        (EOFError("EOF when reading a line"), "nobody can answer input() in a trial"),
        (EOFError("of a pipe"), "EOFError: of a pipe"),
        (
            ValueError(
                "Graph execution error:\n\nDetected at node loss/Softmax defined at (most recent "
                'call last):\n  File "model.py", line 4, in <module>\n\n  File "nn.py", line 7\n\n'
                "Received a label value of 9\nLabel values: 6 7\n\t [[{{node loss/Softmax}}]] "
                "[Op:__inference_1]"
            ),
            "ValueError: Received a label value of 9 Label values: 6 7",
        ),
        (refused_argument("log"), """'log'; of a log scale, say sampling="log\""""),
        (refused_argument("lower"), "got an unexpected keyword argument 'lower'"),
        (Silent(), "Silent: (its text cannot be had: RuntimeError in __str__)"),
    ],
)
def test_an_error_of_the_code_is_one_line_with_what_to_do(error: BaseException, said: str) -> None:
    line = one_line(error)
    assert said in line
    assert "\n" not in line
