"""Follow README and the guide as a new user does, while others watch.

    python benchmarks/first_hour.py                      # ten paths, then the load
    python benchmarks/first_hour.py text images          # some of them
    python benchmarks/first_hour.py load --trials 1000

A path takes its code from a page, runs a small study, and loads the best model. `load` is a study
of which some ten trials end in a second, one in ten with an error, and which is paused, stopped,
killed and resumed. All the time `hptune status --watch` has a terminal, and a headless Chromium has
the dashboard; in `load`, other commands read the study one after the other. No screen may have an
error, or a word that only the developers of hptune use.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import pty
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

HPTUNE = str(Path(sys.executable).with_name("hptune"))
HOUSE = Path(__file__).resolve().parents[1]
GUIDE = HOUSE / "docs" / "guide"

UNWANTED = re.compile(
    r"Traceback|Error\b|[Dd]amaged|unreadable|\bNone\b(?! of the \d)|\bnan\b|\bundefined\b"
    r"|[Ll]edger|\b(?:rung|bracket|placement|roster|fidelity|incumbent|heartbeat)s?\b"
)
ON_PURPOSE = re.compile(
    r"Traceback[^✗]*?one in ten fails\W|ValueError(: one in.*)?"
    r"|Error: the study in study is not running"  # it ended just before it was stopped
)

TEXT = """\
import keras, numpy as np
texts = np.array(["good", "bad", "a good one", "a bad one"] * 40)
words = keras.layers.TextVectorization(output_sequence_length=4)
words.adapt(texts)

def build_model(hp):
    layers = [keras.layers.Embedding(20, hp.Int("size", 4, 16)), keras.layers.Flatten()]
    model = keras.Sequential([keras.Input((4,)), *layers, keras.layers.Dense(1, "sigmoid")])
    model.compile("adam", "binary_crossentropy", metrics=["accuracy"])
    return model

def load_data():
    x, y = words(texts).numpy(), np.array([1, 0, 1, 0] * 40)
    return (x[:120], y[:120]), (x[120:], y[120:])
"""
KERAS_TUNER = """
import keras_tuner as kt
from model import Digits, load_data
(x, y), validation = load_data()
place = {"directory": ".", "project_name": "study"}
tuner = kt.RandomSearch(Digits(), objective="val_accuracy", max_trials=4, **place)
tuner.search_space_summary()
tuner.search(x, y, epochs=2, validation_data=validation)
tuner.results_summary()
"""
LOAD = """
import time
OBJECTIVE, EPOCHS = "loss", 3

def objective(hp, trial):
    x, _ = hp.Float("x", 0, 1), hp.Choice("kind", ["a", "b"])
    for epoch in range(1, 4):
        time.sleep(0.4 / 3)
        trial.report(epoch, loss=x / epoch)
    if trial.seed % 10 == 0:
        raise ValueError("one in ten fails")
    return x
"""
NOTEBOOK = "import nbclient as c, nbformat as f; c.execute(f.read('notebook.ipynb', 4))"
TRAINED_AGAIN = """
from sklearn.datasets import load_digits
from sklearn.neural_network import MLPClassifier
import hptune
study = hptune.Study("study")
{}
print("LOADED", type(network).__name__)
"""
MODEL = "import hptune; print('LOADED', type(hptune.Study('study').best_model()).__name__)"
RESULT = "import hptune; print('LOADED', hptune.Study('study').best_trial.value)"

READS = ("status", "best", "trials", "trials --state failed", "show 0", "report -o r.html",
         "list ..", "export -o t.csv", "note seen", "status --json", "space")  # fmt: skip
MOMENTS = ("pause", "resume", "stop", "kill")
SECONDS_BETWEEN = 10.0


class Way(NamedTuple):
    """A path of a new user; `setup` makes the data, and `load` loads the result."""

    files: Mapping[str, str]
    command: tuple[str, ...]
    setup: str = ""
    load: str = MODEL


def code(page: Path, start: str, *changes: tuple[str, str]) -> str:
    """Return the code of a page that begins with a text, with some of its words replaced."""
    block = rf"^(?:```python|<!-- setup python)\n({re.escape(start)}.*?)^(?:```|-->)"
    text = str(re.findall(block, page.read_text(), re.DOTALL | re.MULTILINE)[0])
    for old, new in changes:
        assert old in text, f"{page.name} has no {old!r}"
        text = text.replace(old, new)
    return text


def ways() -> dict[str, Way]:
    """Return the ten paths by their names."""
    readme, data, programs = HOUSE / "README.md", GUIDE / "data.md", GUIDE / "programs.md"
    model = {"model.py": code(readme, "# model.py")}
    in_study = ("trials=50", "trials=6, directory='study'")
    script = code(readme, "from hptune import Tuner", ("epochs=20", "epochs=2"), in_study)

    def run(name: str, *more: str) -> tuple[str, ...]:
        return (HPTUNE, "run", name, "--study", "study", "--trials", "6", "--epochs", "2", *more)

    def of_data(name: str, load: str) -> Way:
        file = f"{name}.py"
        text = code(data, f"# {file}")
        return Way({file: text}, run(file), code(data, "import pathlib"), load)

    (program,) = re.findall(r'--command ".*?" .*', programs.read_text())[:1]
    in_shell = ("sh", "-c", f"{HPTUNE} run {program} --study study --trials 20")
    notebook = (GUIDE / "notebook.ipynb").read_text().replace("studies/notebook", "study")
    cells = ["".join(cell["source"]) for cell in json.loads(notebook)["cells"]]
    (again,) = [cell for cell in cells if cell.startswith("hp = study.best_hyperparameters")]
    in_notebook = (sys.executable, "-c", NOTEBOOK)
    by_script = {**model, "script.py": KERAS_TUNER}
    two = ("--objective=val_accuracy", "--objective=params:min")
    return {
        "command": Way(model, run("model.py")),
        "python": Way({**model, "script.py": script}, (sys.executable, "script.py")),
        "notebook": Way(
            {"notebook.ipynb": notebook}, in_notebook, load=TRAINED_AGAIN.format(again)
        ),
        "keras-tuner": Way(by_script, (HPTUNE, "run", "script.py", "--study", "study")),
        "pytorch": of_data("loop", RESULT),
        "program": Way({}, in_shell, code(programs, "import pathlib"), RESULT),
        "text": Way({"model.py": TEXT}, run("model.py")),
        "images": of_data("images", MODEL),
        "tabular": of_data("forest", RESULT),
        "objectives": Way(model, run("model.py", *two)),
    }


class Faults(list[str]):
    """What was seen that should not be."""

    def note(self, fault: str) -> None:
        if fault not in self:
            self.append(fault)
            print("  FAULT", fault, flush=True)

    def look(self, who: str, text: str) -> None:
        """Note what is wrong on a screen."""
        plain = ON_PURPOSE.sub("", re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text))
        for line in plain.splitlines():
            if UNWANTED.search(line):
                self.note(f"{who}: {line.strip()[:200]}")


class Command:
    """A command with a terminal of its own, at whose screen is looked in the end."""

    def __init__(self, home: Path, faults: Faults, *words: str, columns: int = 80) -> None:
        self.text = ""
        self._who, self._faults = " ".join(Path(word).name for word in words[:4])[:60], faults
        self.pid, self._file = pty.fork()
        if self.pid == 0:
            os.chdir(home)
            os.environ.update(COLUMNS=str(columns), LINES="40", TERM="xterm-256color")
            os.execvp(words[0], words)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        with contextlib.suppress(OSError):  # the command has ended
            while part := os.read(self._file, 65536):
                self.text += part.decode(errors="replace")

    def runs(self) -> bool:
        return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None

    def wait(self, *allowed: int) -> None:
        """Wait for the end; an exit code that is neither 0 nor allowed is a fault."""
        status = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        self._reader.join(timeout=5)
        os.close(self._file)
        self._faults.look(self._who, self.text)
        if status not in (0, *allowed):
            self._faults.note(f"{self._who} ended with {status}: {self.text[-600:]}")


@contextlib.contextmanager
def watched(home: Path, faults: Faults, page: Any, ends: Command) -> Iterator[None]:
    """Watch the study in a folder, on a terminal and in a browser, from its first moment on."""
    while not (home / "study" / "lock").exists() and ends.runs():
        time.sleep(0.05)
    watch = Command(home, faults, HPTUNE, "status", "study", "--watch")
    server = subprocess.Popen(
        [HPTUNE, "dashboard", "study"], cwd=home, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        text=True,
    )  # fmt: skip
    address = next(line.split()[1] for line in server.stdout or () if line.startswith("Open "))
    page.goto(address)
    try:
        yield
        watch.wait()
    finally:
        faults.look("page", page.inner_text("body"))
        page.goto("about:blank")
        server.send_signal(signal.SIGINT)
        server.wait()


def follow(way: Way, home: Path, faults: Faults, page: Any) -> None:
    """Go one path from its files to the loaded model."""
    for name, text in way.files.items():
        (home / name).write_text(text)
    subprocess.run([sys.executable, "-c", way.setup], cwd=home, check=True)
    run = Command(home, faults, *way.command)
    with watched(home, faults, page, run):
        run.wait()
    for name in ("best", "report", "trials"):
        Command(home, faults, HPTUNE, name, "study").wait()
    loaded = Command(home, faults, sys.executable, "-c", way.load)
    loaded.wait()
    if "LOADED" not in loaded.text:
        faults.note(f"no model is loaded: {loaded.text[-600:]}")


def load(home: Path, faults: Faults, page: Any, *, trials: int) -> None:
    """Read a study while its trials end, and while it is paused, stopped, killed and resumed."""
    (home / "model.py").write_text(LOAD)
    reads, moments, seen = itertools.cycle(READS), itertools.cycle(MOMENTS), set[str]()
    run = (HPTUNE, "run", "model.py", "--study", "study", "--search", "random", "--trials")
    master = Command(home, faults, *run, str(trials), columns=160)
    while "Done:" not in master.text:
        with watched(home, faults, page, master):
            until = time.monotonic() + SECONDS_BETWEEN
            while master.runs():
                name, *options = next(reads).split()
                place = [] if name == "list" else ["study"]
                Command(home, faults, HPTUNE, name, *place, *options).wait(1)
                faults.look("page", page.inner_text("body"))
                if time.monotonic() > until and master.runs():
                    until, moment = time.monotonic() + SECONDS_BETWEEN, next(moments)
                    print(f"  {moment}", flush=True)
                    seen.add(moment)
                    if moment == "kill":
                        os.kill(master.pid, signal.SIGKILL)
                    else:
                        Command(home, faults, HPTUNE, moment, "study").wait(1)
        master.wait(1, 130, -signal.SIGKILL)
        if "Done:" not in master.text:
            master = Command(home, faults, HPTUNE, "resume", "study")
    if unseen := set(MOMENTS) - seen:
        faults.note(f"the study ended before {', '.join(unseen)}; give --trials more")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("paths", nargs="*", help="names of paths, or load; all by default")
    parser.add_argument("--trials", type=int, default=1000, help="of load")
    said = parser.parse_args()
    known, faults = ways(), Faults()
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        program = shutil.which("chromium") or shutil.which("google-chrome")
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        page = browser.new_context(viewport={"width": 1400, "height": 900}).new_page()
        page.on("pageerror", lambda error: faults.note(f"page: {error}"))
        for name in said.paths or [*known, "load"]:
            began = time.monotonic()
            with tempfile.TemporaryDirectory(prefix="hptune-") as folder:
                if name == "load":
                    load(Path(folder), faults, page, trials=said.trials)
                else:
                    follow(known[name], Path(folder), faults, page)
            print(f"{name}: {time.monotonic() - began:.0f} s", flush=True)
        browser.close()
    sys.exit(f"{len(faults)} faults" if faults else 0)


if __name__ == "__main__":
    main()
