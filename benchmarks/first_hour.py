"""Follow the guide as a new user does, while others watch: no error, no word to look up.

    python benchmarks/first_hour.py                 # all ten paths, then the load
    python benchmarks/first_hour.py text images     # some paths
    python benchmarks/first_hour.py load --trials 1000

Each path takes its code from README and the guide, runs a small study, and loads the best model.
`load` runs a study whose trials end every 0.2 seconds, some of them with an error, and pauses,
stops and resumes it. All the time `hptune status --watch` has a terminal, a headless Chromium has
the dashboard, and in `load` one command after the other reads the study. Whatever a watcher shows
must be free of errors and of the words that only hptune's developers use.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
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
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HPTUNE = str(Path(sys.executable).with_name("hptune"))
HOUSE = Path(__file__).resolve().parents[1]
GUIDE = HOUSE / "docs" / "guide"

UNWANTED = re.compile(
    r"Traceback|Error\b|[Dd]amaged|unreadable|\bNone\b|\bnan\b|\bundefined\b|AttemptId|[Ll]edger"
    r"|\b(?:rung|bracket|placement|roster|fidelity|incumbent|heartbeat)s?\b"
)  # fmt: skip
"""What no screen of a study without a fault shows."""

EXPECTED = re.compile(r"Traceback[^✗]*?one in ten fails\W|ValueError(: one in.*)?")
"""What the studies of this script do on purpose."""

TEXT = """\
import keras
import numpy as np

EPOCHS = 2
TEXTS = np.array(["good film", "bad film", "a good one", "a bad one"] * 40)
WORDS = keras.layers.TextVectorization(output_sequence_length=4)
WORDS.adapt(TEXTS)


def build_model(hp):
    size = hp.Int("size", 4, 16)
    layers = [keras.layers.Embedding(20, size), keras.layers.GlobalAveragePooling1D()]
    model = keras.Sequential([keras.Input((4,)), *layers, keras.layers.Dense(1, "sigmoid")])
    model.compile("adam", "binary_crossentropy", metrics=["accuracy"])
    return model


def load_data():
    x, y = WORDS(TEXTS).numpy(), np.array([1, 0, 1, 0] * 40)
    return (x[:120], y[:120]), (x[120:], y[120:])
"""

KERAS_TUNER = """
import keras
import keras_tuner as kt
from model import Digits, load_data

(x, y), validation = load_data()
tuner = kt.RandomSearch(Digits(), objective="val_accuracy", max_trials=4, directory=".",
                        project_name="study")
tuner.search_space_summary()
tuner.search(x, y, epochs=2, validation_data=validation)
tuner.results_summary()
print("LOADED", type(tuner.get_best_models(1)[0]).__name__)
"""

LOAD = """
import time

OBJECTIVE, EPOCHS = "loss", 3

def objective(hp, trial):
    x, kind = hp.Float("x", 0, 1), hp.Choice("kind", ["a", "b"])
    for epoch in range(1, 4):
        time.sleep(0.4 / 3)
        trial.report(epoch, loss=x / epoch)
    if trial.seed % 10 == 0:
        raise ValueError("one in ten fails")
    return x
"""

BEST = "import hptune; print('LOADED', type(hptune.Study('study').best_model()).__name__)"
RESULT = "import hptune; print('LOADED', hptune.Study('study').best_trial.value)"


def code(page: Path, start: str, *changes: tuple[str, str]) -> str:
    """Return the code of a page that begins with a text, with some of its words replaced."""
    (text,) = re.findall(rf"^(?:```python|<!-- setup python)\n({re.escape(start)}.*?)^(?:```|-->)",
                         page.read_text(), re.DOTALL | re.MULTILINE)[:1]  # fmt: skip
    for old, new in changes:
        assert old in text, f"{page.name} has no {old!r}"
        text = text.replace(old, new)
    return str(text)


@dataclass(frozen=True)
class Way:
    """A path of a new user.

    Attributes:
        files: The files that the user writes, by name.
        command: What the user types.
        setup: Code that makes the user's data.
        load: Code that loads the best model.
    """

    files: Mapping[str, str]
    command: tuple[str, ...]
    setup: str = ""
    load: str = BEST


def ways() -> dict[str, Way]:
    """Return the ten paths by their names."""
    readme, data, programs = HOUSE / "README.md", GUIDE / "data.md", GUIDE / "programs.md"
    model = {"model.py": code(readme, "# model.py")}
    script = code(readme, "from hptune import Tuner", ("epochs=20", "epochs=2"),
                  ("trials=50", "trials=6, directory='study'"))  # fmt: skip
    made, short = code(data, "import pathlib"), ("--trials", "6", "--epochs", "2")
    run = (HPTUNE, "run", "model.py", "--study", "study", *short)

    def of_data(name: str, load: str = BEST) -> Way:
        text = code(data, f"# {name}.py")
        return Way({f"{name}.py": text}, (*run[:2], f"{name}.py", *run[3:]), made, load)

    program = re.search(r'--command ".*?" .*', programs.read_text())
    assert program
    line = f"{HPTUNE} run {program.group()} --study study --trials 20"
    notebook = "import nbformat as f, nbclient as c; book = f.read('notebook.ipynb', 4); "
    notebook += "c.NotebookClient(book, timeout=300).execute()"
    copied = f"import shutil; shutil.copy({str(GUIDE / 'notebook.ipynb')!r}, '.')"
    folder = "import hptune, pathlib; s = next(pathlib.Path().rglob('study.db')).parent; "
    return {
        "command": Way(model, run),
        "python": Way(model | {"script.py": script}, (sys.executable, "script.py")),
        "notebook": Way({}, (sys.executable, "-c", notebook), copied,
                        f"{folder}print('LOADED', hptune.Study(s).best_trial.value)"),
        "keras-tuner": Way(model | {"script.py": KERAS_TUNER},
                           (HPTUNE, "run", "script.py", "--study", "study")),
        "pytorch": of_data("loop", RESULT),
        "program": Way({}, ("sh", "-c", line), code(programs, "import pathlib"), RESULT),
        "text": Way({"model.py": TEXT}, run),
        "images": of_data("images"),
        "tabular": of_data("forest", RESULT),
        "objectives": Way(model, (*run, "--objective=val_accuracy", "--objective=params:min")),
    }  # fmt: skip


@dataclass
class Faults:
    """What watchers have seen that they should not see."""

    found: list[str] = field(default_factory=list)
    seen: set[tuple[str, str]] = field(default_factory=set)

    def look(self, who: str, text: str) -> None:
        """Keep what is wrong in a text, once."""
        plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)
        for line in EXPECTED.sub("", plain).splitlines():
            match = UNWANTED.search(line)
            if match and (who, match.group()) not in self.seen:
                self.seen.add((who, match.group()))
                self.found.append(f"{who}: {line.strip()[:200]}")
                print("  FAULT", self.found[-1], flush=True)


class Command:
    """A command with a terminal of its own, whose output is looked at."""

    def __init__(self, words: tuple[str, ...], home: Path, faults: Faults, columns: int) -> None:
        self.words, self.text = words, ""
        self._who, self._faults = " ".join(Path(word).name for word in words[:4])[:60], faults
        self._pid, self._file = pty.fork()
        if self._pid == 0:
            os.chdir(home)
            os.environ.update(COLUMNS=str(columns), LINES="40", TERM="xterm-256color")
            os.execvp(words[0], words)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        with contextlib.suppress(OSError):  # the command has ended
            while part := os.read(self._file, 65536):
                self.text += part.decode(errors="replace")

    def send(self, number: int) -> None:
        """Send a signal, as Ctrl-C does."""
        os.kill(self._pid, number)

    def runs(self) -> bool:
        """Return whether it has not ended."""
        return os.waitid(os.P_PID, self._pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None

    def wait(self, *allowed: int) -> None:
        """Wait for the end, and look at all that was shown."""
        status = os.waitstatus_to_exitcode(os.waitpid(self._pid, 0)[1])
        self._reader.join(timeout=5)
        self._faults.look(self._who, self.text)
        if status not in (0, *allowed):
            self._faults.found.append(f"{self._who} ended with {status}: {self.text[-600:]}")
            print("  FAULT", self._faults.found[-1], flush=True)


@contextlib.contextmanager
def watched(study: Path, faults: Faults, page: Any) -> Iterator[None]:
    """Watch a study on a terminal and in a browser, from its first moment on."""
    while not (study / "lock").exists():
        time.sleep(0.05)
    watch = Command((HPTUNE, "status", str(study), "--watch"), study.parent, faults, 80)
    server = subprocess.Popen([HPTUNE, "dashboard", str(study)], stdout=subprocess.PIPE, text=True)
    assert server.stdout
    for line in server.stdout:
        if line.startswith("Open "):
            page.goto(line.split()[1])
            break
    try:
        yield
        watch.wait()
    finally:
        faults.look("page", page.inner_text("body"))
        page.goto("about:blank")
        server.send_signal(signal.SIGINT)
        server.wait()


def main() -> None:
    """Follow the paths that the command line names."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("paths", nargs="*", help="names of paths, or load; all by default")
    parser.add_argument("--trials", type=int, default=1000, help="of load")
    said = parser.parse_args()
    known, faults = ways(), Faults()
    with chromium(faults) as page:
        for name in said.paths or [*known, "load"]:
            with tempfile.TemporaryDirectory(prefix=f"hptune-{name}-") as folder:
                began = time.monotonic()
                if name == "load":
                    load(Path(folder), faults, page, trials=said.trials)
                else:
                    follow(known[name], Path(folder), faults, page)
                print(f"{name}: {time.monotonic() - began:.0f} s", flush=True)
    print(f"{len(faults.found)} faults")
    sys.exit(bool(faults.found))


def follow(way: Way, home: Path, faults: Faults, page: Any) -> None:
    """Go one path from its files to the loaded model."""
    for name, text in way.files.items():
        (home / name).write_text(text)
    subprocess.run([sys.executable, "-c", way.setup], cwd=home, check=True)
    run = Command(way.command, home, faults, 80)
    if "notebook.ipynb" in way.setup:  # whose study has a name that it chooses itself
        run.wait()
    else:
        with watched(home / "study", faults, page):
            run.wait()
        for words in (("best", "study"), ("report", "study"), ("trials", "study")):
            Command((HPTUNE, *words), home, faults, 80).wait()
    loaded = subprocess.run([sys.executable, "-c", way.load], cwd=home, capture_output=True,
                            text=True, check=False)  # fmt: skip
    if "LOADED" not in loaded.stdout:
        faults.found.append(f"{way.command[2]}: no model is loaded: {loaded.stderr[-600:]}")
        print("  FAULT", faults.found[-1], flush=True)


MOMENTS = ("pause", "resume", "stop", "kill")
SECONDS_BETWEEN = 20.0
READS = ("status", "best", "trials", "trials --state failed", "show 0", "report -o r.html",
         "export -o t.csv", "list ..", "note seen", "status --json", "space")  # fmt: skip


def load(home: Path, faults: Faults, page: Any, *, trials: int) -> None:
    """Read a study while its trials end, and while it is paused, stopped and resumed."""
    (home / "model.py").write_text(LOAD)
    run = (HPTUNE, "run", "model.py", "--study", "study", "--search", "random",
           "--trials", str(trials))  # fmt: skip
    reads, moments = itertools.cycle(READS), itertools.cycle(MOMENTS)
    master = Command(run, home, faults, 160)
    while "Done:" not in master.text:
        with watched(home / "study", faults, page):
            until = time.monotonic() + SECONDS_BETWEEN
            while master.runs():
                name, *options = next(reads).split()
                place = [] if ".." in options else ["study"]
                Command((HPTUNE, name, *place, *options), home, faults, 80).wait(1)
                faults.look("page", page.inner_text("body"))
                if time.monotonic() > until:
                    until, moment = time.monotonic() + SECONDS_BETWEEN, next(moments)
                    print(f"  {moment}", flush=True)
                    if moment == "kill":
                        master.send(signal.SIGKILL)
                    elif master.runs():
                        Command((HPTUNE, moment, "study"), home, faults, 80).wait()
        master.wait(1, 130, -signal.SIGKILL)
        if "Done:" not in master.text:
            master = Command((HPTUNE, "resume", "study"), home, faults, 80)


@contextlib.contextmanager
def chromium(faults: Faults) -> Iterator[Any]:
    """Yield a page of a browser without a window; what its console says is a fault."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        program = shutil.which("chromium") or shutil.which("google-chrome")
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        page = browser.new_context(viewport={"width": 1400, "height": 900}).new_page()
        page.on("pageerror", lambda error: faults.look("console", f"Error: {error}"))
        yield page
        browser.close()


if __name__ == "__main__":
    main()
