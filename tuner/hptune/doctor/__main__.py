"""One check in a process of its own: `python -m hptune.doctor CHECK SUBJECT`.

Findings go to standard output at once, a line of JSON each. Output of the user's code or of a
framework goes to standard error.
"""

from __future__ import annotations

import json
import os
import sys

from .examination import CHECKS
from .findings import Subject


def main(name: str, subject: str) -> None:
    """Run the check of that name."""
    with os.fdopen(os.dup(1), "w") as findings:
        os.dup2(2, 1)
        check = next(each for each in CHECKS if each.name == name)
        for finding in check.run(Subject(**json.loads(subject))):
            print(json.dumps(finding.to_json()), file=findings, flush=True)
    # Do not wait for the threads that frameworks and clusters leave behind.
    os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
