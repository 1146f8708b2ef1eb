"""Commands of batch systems that are not installed here; their jobs are processes.

They take what dask-jobqueue's classes write, and answer in the words of the real ones.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

COMMANDS = {
    "pbs": ("qsub", "qstat", "qdel"),
    "lsf": ("bsub", "bjobs", "bkill"),
    "htcondor": ("condor_submit", "condor_q", "condor_rm"),
    "oar": ("oarsub", "oarstat", "oardel"),
}
"""Of each system the commands that submit, list and cancel."""

ANSWERS = {
    "pbs": "{0}.server",
    "lsf": "Job <{0}> is submitted to default queue <normal>.",
    "htcondor": "Submitting job(s).\n1 job(s) submitted to cluster {0}.",
    "oar": "[ADMISSION RULE] none\nOAR_JOB_ID={0}",
}
LINES = {
    "pbs": "{0}.server  user  workq  hptune-1  --  1  1  1gb 00:10 R 00:00",
    "lsf": "{0}  user  RUN  normal  login  node1  hptune-1  Nov 25 16:00",
    "htcondor": "{0}.0  user  11/25 16:00  0+00:00:01 R  0  0.0 sh -c",
    "oar": "{0}  N  user  2026-11-25 16:00:00 R  default",
}
HEADS = {"pbs": "server:\nJob ID  Username", "lsf": "JOBID USER STAT", "htcondor": " ID OWNER",
         "oar": "Job id Name"}  # fmt: skip


def install(folder: Path, system: str) -> None:
    """Write a system's commands into a folder, which also holds their jobs."""
    folder.mkdir()
    for command in COMMANDS[system]:
        program = folder / command
        program.write_text(f'#!/bin/sh\nexec {sys.executable} {__file__} {system} {command} "$@"\n')
        program.chmod(0o755)


def script_of(system: str, arguments: list[str]) -> str:
    """Return the shell lines of a job, as it is submitted."""
    if system == "lsf":
        return sys.stdin.read()
    if system == "oar":
        return arguments[-1]
    text = Path(arguments[-1]).read_text()
    if system == "htcondor":
        found = re.search(r"^Arguments = \"-c '(.*)'\"$", text, re.MULTILINE)
        assert found is not None, text
        assert "$(" not in found[1], "HTCondor would replace it"
        text = found[1].replace("''", "'").replace('""', '"')
    return text


def main(system: str, command: str, *arguments: str) -> int:
    submits, lists, _ = COMMANDS[system]
    here = Path(os.environ["FAKE_BATCH_SYSTEM"])
    jobs = {each.stem: int(each.read_text()) for each in here.glob("*.pid")}
    if command == submits:
        number = str(100 + len(jobs))
        script = here / f"{number}.sh"
        script.write_text(script_of(system, list(arguments)))
        with (here / f"{number}.out").open("wb") as out:
            job = subprocess.Popen(
                ["bash", script], stdout=out, stderr=out, stdin=subprocess.DEVNULL,
                start_new_session=True,
            )  # fmt: skip
        (here / f"{number}.pid").write_text(str(job.pid))
        sys.stdout.write(f"{ANSWERS[system].format(number)}\n")
    elif command == lists:
        there = [each for each, pid in jobs.items() if Path(f"/proc/{pid}").exists()]
        if system == "lsf" and not there:
            sys.stderr.write("No unfinished job found\n")
            return 255
        rows = [HEADS[system], *(LINES[system].format(each) for each in there)]
        sys.stdout.write("\n".join([*rows, ""]))
    else:
        for each in arguments:
            os.killpg(jobs[each.partition(".")[0]], signal.SIGTERM)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
