"""The files that images are built from: they agree with each other and with the package."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from requirements import require

ROOT = Path(__file__).parents[2]
FILES = ROOT / "containers"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
CONTAINERFILE = re.sub(r"\\\n\s*", "", (FILES / "Containerfile").read_text())
DEFINITION = (FILES / "hptune.def").read_text()
LOCKS = sorted(each.stem for each in (FILES / "locks").glob("*.txt"))


def instructions(kind: str) -> list[str]:
    return re.findall(rf"^{kind} (.*)", CONTAINERFILE, re.MULTILINE)


def sections(name: str) -> list[list[str]]:
    """Return the lines of each section of this name in the definition file."""
    found = re.findall(rf"^%{name}\n((?:    .*\n)+)", DEFINITION, re.MULTILINE)
    return [[line.strip() for line in each.splitlines()] for each in found]


def locked(name: str) -> dict[str, str]:
    """Return the packages of a lock file with their versions; each must have hashes."""
    text = (FILES / "locks" / f"{name}.txt").read_text()
    entries = re.split(r"\n(?=[a-z0-9])", re.sub(r"^#.*\n", "", text, flags=re.MULTILINE).strip())
    assert all("--hash=sha256:" in each for each in entries)
    pairs = (re.match(r"([^\s=\[]+)(?:\[[^]]*\])?==([^\s;\\]+)", each) for each in entries)
    return {canonicalize_name(found[1]): found[2] for found in pairs if found}


@pytest.mark.parametrize("name", LOCKS)
def test_keras_tuner_can_be_imported(name: str) -> None:
    packages = locked(name)
    assert "keras-tuner" not in packages or "six" in packages, "it does not require six"


def test_the_definition_for_apptainer_has_the_steps_of_the_containerfile() -> None:
    arguments = dict(each.split("=", 1) for each in instructions("ARG"))
    for given in sections("arguments"):
        for name, value in (line.split("=", 1) for line in given):
            assert arguments[name] == value
    told = {line.split("=")[0] for given in sections("arguments") for line in given}
    assert told == set(arguments)
    steps = [re.sub(r"--mount=\S+\s+", "", each) for each in instructions("RUN")]
    expected = [re.sub(r"\$\{(\w+)\}", r"{{ \1 }}", each) for each in steps if "install.sh" in each]
    assert sections("post") == [[f"cd {instructions('WORKDIR')[0]}", *expected]]
    copied = {word.split("/")[0] for each in instructions("COPY") for word in each.split()[:-1]}
    files = {line.split()[0].split("/")[0] for line in sections("files")[0]}
    assert files == copied - {"--from=build", "", "-"}
    environment = dict(re.findall(r"(\w+)=(\S+)", instructions("ENV")[0]))
    del environment["HOME"]  # Apptainer keeps the caller's
    exported = dict(
        line.removeprefix("export ").split("=", 1) for line in sections("environment")[0]
    )
    assert exported == environment
    labels = dict(re.findall(r'([\w.]+)="([^"]*)"', instructions("LABEL")[0]))
    shown = dict(line.split(" ", 1) for line in sections("labels")[0])
    assert shown == {
        name: value.replace("${VERSION}", "{{ VERSION }}") for name, value in labels.items()
    }
    assert arguments["VERSION"] == PROJECT["version"]


def test_nothing_that_is_copied_is_ignored() -> None:
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    kept = {each.removeprefix("!") for each in lines if each.startswith("!")}
    for each in instructions("COPY"):
        if not each.startswith("--from"):
            for word in each.split()[:-1]:
                assert any(word == name or word.startswith(f"{name}/") for name in kept), word
    assert "*" in lines


@pytest.mark.parametrize("name", [each for each in LOCKS if each != "build"])
def test_a_lock_has_what_the_package_asks_for(name: str) -> None:
    packages = locked(name)
    for each in map(Requirement, PROJECT["dependencies"]):
        version = packages[canonicalize_name(each.name)]
        assert version in each.specifier, f"sh containers/lock.sh: {each}, but {version} is locked"
    framework, _, devices = name.partition("-")
    assert devices in {"cpu", "cuda"}
    wanted = {
        "tensorflow": ("keras", "keras-tuner"),
        "jax": ("jax", "keras"),
        "torch": ("torch", "keras"),
    }
    for package in wanted.get(framework, ()):
        assert package in packages
    if framework == "none":
        assert not {"keras", "tensorflow", "jax", "torch"} & set(packages)


def test_compose_starts_a_scheduler_and_workers_that_find_each_other() -> None:
    services: dict[str, Any] = yaml.safe_load((FILES / "compose.yaml").read_text())["services"]
    assert set(services) == {"scheduler", "worker", "study"}
    assert services["scheduler"]["command"] == ["scheduler", "--host", "scheduler"]
    assert services["worker"]["command"] == ["worker", "tls://scheduler:8786"]
    check = re.search(r"HEALTHCHECK .*CMD (\[.*\])", CONTAINERFILE)
    assert check is not None
    for each in ("scheduler", "worker"):
        assert services[each]["healthcheck"]["test"] == ["CMD", *yaml.safe_load(check[1])]
    for each in services.values():
        assert each["init"]
        assert each["environment"] == {"XDG_CONFIG_HOME": "/project/.config"}
        assert (ROOT / each["build"]["dockerfile"]).exists()


def test_the_file_for_kubernetes_has_its_schema_and_its_parts_find_each_other() -> None:
    require("kubernetes_validate")
    import kubernetes_validate

    documents = yaml.safe_load_all((FILES / "kubernetes.yaml").read_text())
    parts = {each["metadata"]["name"]: each for each in documents}
    for each in parts.values():
        kubernetes_validate.validate(each, "1.30", strict=True)
    assert set(parts) == {"hptune-studies", "hptune", "hptune-master", "hptune-workers"}
    master, workers = (parts[f"hptune-{job}"]["spec"]["template"] for job in ("master", "workers"))
    assert parts["hptune"]["spec"]["selector"] == master["metadata"]["labels"]
    scheduler, worker = master["spec"]["initContainers"][0], workers["spec"]["containers"][0]
    port = parts["hptune"]["spec"]["ports"][0]["port"]
    assert worker["args"][1] == f"tls://hptune:{port}"
    check = re.search(r"HEALTHCHECK .*CMD (\[.*\])", CONTAINERFILE)
    assert check is not None
    for each in (scheduler["startupProbe"], worker["readinessProbe"]):
        assert each["exec"]["command"] == yaml.safe_load(check[1])
    for job in (master, workers):
        volumes = {each["name"] for each in job["spec"]["volumes"]}
        containers = job["spec"].get("initContainers", []) + job["spec"]["containers"]
        mounts = {mount["name"] for each in containers for mount in each["volumeMounts"]}
        assert mounts == volumes
        secret = next(each["secret"] for each in job["spec"]["volumes"] if each["name"] == "certs")
        assert secret["defaultMode"] == 0o440, "hptune refuses a key that others may read"
    # Two minutes for files that a worker sends when it leaves.
    assert workers["spec"]["terminationGracePeriodSeconds"] > 120
