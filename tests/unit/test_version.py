"""The release is stated once, in the package; everything that needs it reads it there."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import chalicelib
from chalicelib.net.http_exchange import ExchangeBounds, Request, exchange
from chalicelib.net.http_session import BoundedAdapter, BoundedSession, public_context
from infra.emulators.scripted_http_server import HttpScript, Reply
from tests.unit.cluster.support import client

ROOT = Path(__file__).resolve().parents[2]
HOME = "chalicelib/__init__.py"
#: : The changelog names earlier releases, and locks name those of other projects.
_MAY_NAME_RELEASES = ("CHANGELOG.md", "docs/upgrade.md", "requirements", "tests/")
_RELEASE = re.compile(r"\d+\.\d+\.\d+(?:(?:a|b|rc)\d+)?")


def statements(text: str, version: str) -> list[str]:
    """Returns the lines that state the version as a number of its own, not as a part of another."""
    pattern = re.compile(rf"(?<![\d.=]){re.escape(version)}(?![\d.])")
    return [line for line in text.splitlines() if pattern.search(line)]


def tracked() -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    return [
        ROOT / name
        for name in listed.split("\0")
        if name and not name.startswith(_MAY_NAME_RELEASES)
    ]


def test_version_has_three_numbers() -> None:
    assert _RELEASE.fullmatch(chalicelib.__version__)


def test_version_is_stated_only_in_the_package() -> None:
    found = {
        path.relative_to(ROOT).as_posix()
        for path in tracked()
        if path.is_file()
        and statements(path.read_text("utf-8", errors="replace"), chalicelib.__version__)
    }
    assert found == {HOME}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert project["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "chalicelib.__version__"}


@pytest.mark.parametrize("line", ['version = "1.2.3"', "outscaler 1.2.3, as released", "v1.2.3"])
def test_version_check_detects_a_second_statement(line: str) -> None:
    assert statements(line, "1.2.3") == [line]


@pytest.mark.parametrize("line", ["boto3==1.2.3", "1.2.34", "11.2.3", "10.1.2.3"])
def test_version_check_ignores_other_numbers(line: str) -> None:
    assert statements(line, "1.2.3") == []


def test_version_can_be_read_without_importing_anything_else() -> None:
    script = (
        "import sys, chalicelib; sys.stdout.write(' '.join(n for n in sys.modules if "
        "n.startswith('chalicelib.')))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout == ""


def test_version_is_in_every_request_to_a_vendor_or_cluster() -> None:
    with HttpScript(
        [Reply(200), Reply(200, {"kind": "Node", "metadata": {"name": "a"}})]
    ) as server:
        session = BoundedSession()
        session.mount("http://", BoundedAdapter(public_context, allowed=lambda _: True))
        exchange(
            session, Request("GET", f"{server.url}/x", {}), ExchangeBounds(5.0, 5.0, 5.0, 1000)
        )
        session.close()
        client(server.url).get("/api/v1/nodes/a")
    assert {seen.headers["user-agent"] for seen in server.requests} == {
        f"outscaler/{chalicelib.__version__}"
    }
