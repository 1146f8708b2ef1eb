"""What messages advise people to install is not a name that a stranger could register."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hptune.errors import how_to_install, own_source, without_passwords

METADATA = """\
Metadata-Version: 2.4
Name: hptune
Version: 0.1.0
Requires-Dist: numpy>=1.26
Provides-Extra: optuna
Requires-Dist: cmaes>=0.11; extra == "optuna"
Requires-Dist: optuna>=4.0; extra == "optuna"
"""


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the record of where hptune was installed from, which pip writes."""
    folder = tmp_path / "hptune-0.1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text(METADATA)
    monkeypatch.syspath_prepend(str(tmp_path))
    return folder / "direct_url.json"


def test_a_folder_and_a_wheel_are_installed_again_with_the_extra(
    installed: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "my code"
    folder.mkdir()
    for record, option in (({}, ""), ({"editable": True}, "-e ")):
        installed.write_text(json.dumps({"url": folder.as_uri(), "dir_info": record}))
        assert how_to_install("optuna") == f"pip install {option}'{folder}[optuna]'"
    assert own_source() == f"-e '{folder}'"
    wheel = tmp_path / "hptune-0.1.0-py3-none-any.whl"
    wheel.touch()
    installed.write_text(json.dumps({"url": wheel.as_uri(), "archive_info": {}}))
    assert how_to_install("keras") == (
        f"pip install '{wheel}[tensorflow]' (or jax or torch in place of tensorflow)"
    )


def test_an_address_is_named_with_its_commit(installed: Path) -> None:
    url = "https://example.org/hptune"
    installed.write_text(
        json.dumps({"url": url, "vcs_info": {"vcs": "git", "commit_id": "c0ffee"}})
    )
    assert how_to_install("optuna") == f"pip install 'hptune[optuna] @ git+{url}@c0ffee'"
    installed.write_text(json.dumps({"url": f"{url}.whl", "archive_info": {}}))
    assert own_source() == f"'hptune @ {url}.whl'"


@pytest.mark.parametrize("record", ["", '{"url": "file:///no/such/folder", "dir_info": {}}'])
def test_where_the_source_is_unknown_or_gone_the_packages_are_named(
    installed: Path, record: str
) -> None:
    installed.write_text(record)
    assert own_source() == ""
    assert how_to_install("optuna") == "pip install 'cmaes>=0.11' 'optuna>=4.0'"


def test_no_document_advises_to_install_the_bare_name() -> None:
    root = Path(__file__).parents[1]
    pages = (*root.glob("*.md"), *(p for f in ("docs", "examples") for p in (root / f).rglob("*")))
    texts = (*pages, *(root / "tuner").rglob("*.py"))
    for path in texts:
        if path.suffix in (".md", ".py", ".toml"):
            for words in ("install hptune", "install 'hptune", 'install "hptune'):
                assert words not in path.read_text(), path


@pytest.mark.parametrize(
    ("words", "masked"),
    [
        ("x://ada:secret@h y://b:secret@i", "x://ada:***@h y://b:***@i"),
        ("x://ada:a/b@c@h:5/d", "x://ada:***@h:5/d"),
        ("x://ada:secr…", "x://ada:***…"),
        ("x://h:80/y://ada:secret@i", "x://h:80/y://ada:***@i"),
        ("x://h/d?user=a&Password=secret&b=c", "x://h/d?user=a&Password=***&b=c"),
        ("x://h/d?access_token=secret&b=c", "x://h/d?access_token=***&b=c"),
        ("x://h/d#client_secret=secret", "x://h/d#client_secret=***"),
        ("git+https://h:443/code@c0ffee", "git+https://h:443/code@c0ffee"),
        ("git+https://t0ken@h/code@c0ffee", "git+https://***@h/code@c0ffee"),
        ("https://t0ken:@h https://t0ken:x-oauth-basic@i", "https://***:***@h https://***:***@i"),
        ("https://h:443/a@b https://h/a@b", "https://h:443/a@b https://h/a@b"),
        ("tls://node1:8786 of ada@h", "tls://node1:8786 of ada@h"),
        ("x://ada@h", "x://ada@h"),
        ("docker://ubuntu:22.04@sha256:c0ffee", "docker://ubuntu:22.04@sha256:c0ffee"),
        ('{"a":"x://h","b":"c@h"}', '{"a":"x://h","b":"c@h"}'),
        ("('x://h:80','ada@h')", "('x://h:80','ada@h')"),
        ("f('x://h?token=secret', 'x://ada:secret@h')", "f('x://h?token=***', 'x://ada:***@h')"),
        ("a://b:" * 100_000, "a://b:" * 100_000),
        (f"@{'a://b:' * 100_000}@", "@a://b:***@"),
    ],
)
def test_passwords_are_masked_once(words: str, masked: str) -> None:
    assert without_passwords(words) == masked
    assert without_passwords(masked) == masked
