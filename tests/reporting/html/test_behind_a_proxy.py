"""The live page behind Jupyter's proxy, below the prefixes of JupyterHub and Open OnDemand."""

from __future__ import annotations

import socket
import sys
import threading
import urllib.error
import urllib.request
from urllib.parse import urlsplit

import pytest

from browser import browser
from hptune.study.dashboard import study_server
from hptune.study.study import Study
from real_runs import Hptune, wait_for
from requirements import require
from stored_study import typical

KEY = "of-this-test"


def answers(address: str) -> bool:
    try:
        with urllib.request.urlopen(address, timeout=30):
            return True
    except (urllib.error.URLError, ConnectionError):
        return False


@pytest.mark.slow  # starts a Jupyter server
@pytest.mark.parametrize(
    ("prefix", "proxy"),
    [
        ("/user/ada/", "proxy"),  # JupyterHub
        ("/node/n7/8888/", "proxy"),  # Open OnDemand
        ("/user/ada/", "proxy/absolute"),  # the page gets the prefix too
    ],
)
def test_a_proxy_may_show_the_page_below_a_prefix(hptune: Hptune, prefix: str, proxy: str) -> None:
    require("jupyter_server_proxy")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    places = dict.fromkeys(
        ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "IPYTHONDIR"),
        str(hptune.directory / "jupyter"),
    )
    jupyter = hptune.other(
        sys.executable, "-m", "jupyter_server", "--no-browser", "--allow-root",
        f"--ServerApp.port={port}", f"--ServerApp.base_url={prefix}",
        f"--IdentityProvider.token={KEY}", **places,
    )  # fmt: skip
    page = study_server(Study(typical(hptune.study()).path))
    serving = threading.Thread(target=page.serve)
    serving.start()
    try:
        root = f"http://127.0.0.1:{port}{prefix}"
        wait_for(lambda: answers(f"{root}api"), "Jupyter")
        own = urlsplit(page.address)
        with browser() as window:
            window.page.goto(f"{root}tree?token={KEY}")
            window.page.goto(f"{root}{proxy}/{own.port}{own.path}?{own.query}")
            assert window.page.url == f"{root}{proxy}/{own.port}{page.folder}"
            assert window.points("history") > 0  # by a POST
            kept = {each["name"]: each["path"] for each in window.page.context.cookies()}
            folder = f"{prefix}{proxy}/{own.port}{page.folder}".rstrip("/")
            assert kept[f"hptune-{own.port}"] == folder
    finally:
        page.close()
        serving.join()
        jupyter.interrupt()
        jupyter.interrupt()
        jupyter.wait()
