"""What is in the image: the locked packages and nothing to build or install others with."""

from __future__ import annotations

import json
import re
import subprocess
import tomllib
from pathlib import Path
from typing import Any

from packaging.markers import Marker
from packaging.utils import canonicalize_name

from real_containers import USER, in_container

ROOT = Path(__file__).parents[2]
QUESTIONS = """
import importlib.metadata, json, os, pwd, shutil, site, sys
from packaging.markers import default_environment
home = pwd.getpwuid(0).pw_dir
print(json.dumps({
    "packages": {each.name: each.version for each in importlib.metadata.distributions()},
    "programs": [each for each in ("gcc", "cc", "ld", "pip", "uv") if shutil.which(each)],
    "markers": default_environment(),
    "caches": [each for each in (f"{home}/.cache", "/home/hptune/.cache", "/build")
               if os.path.exists(each)],
    "user": os.getuid(),
    "prefix": sys.prefix,
    "may_write": os.access(sys.prefix, os.W_OK),
    "user_site": site.ENABLE_USER_SITE,
}))
"""


def test_the_image_has_the_locked_packages_and_no_way_to_others(image: str) -> None:
    found: dict[str, Any] = json.loads(in_container(image, "python3", "-P", "-c", QUESTIONS))
    expected: dict[str, str] = {}
    text = (ROOT / "containers" / "locks" / "none-cpu.txt").read_text()
    for name, version, marker in re.findall(
        r"^([a-z0-9][^\s=]*)==(\S+)(?: ; (.*?))? \\$", text, re.MULTILINE
    ):
        if not marker or Marker(marker).evaluate(found["markers"]):
            expected[canonicalize_name(name)] = version
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    expected["hptune"] = project["version"]
    packages = {canonicalize_name(name): v for name, v in found["packages"].items()}
    assert packages == expected
    assert (found["programs"], found["caches"]) == ([], [])
    assert (found["user"], found["may_write"], found["user_site"]) == (USER, False, False)
    assert found["prefix"] == "/opt/hptune"


def test_the_image_says_what_it_is_and_starts_hptune_itself(image: str) -> None:
    shown = subprocess.run(
        ["podman", "image", "inspect", image], capture_output=True, text=True, check=True
    )
    config = json.loads(shown.stdout)[0]["Config"]
    labels = config["Labels"]
    assert labels["org.opencontainers.image.title"] == "hptune"
    version = labels["org.opencontainers.image.version"]
    assert config["Entrypoint"] == ["hptune"], "a shell would not pass SIGTERM on"
    assert version in in_container(image, "hptune", "--version")
