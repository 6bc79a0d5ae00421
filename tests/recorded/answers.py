"""What the commands answer about the recorded table and about generated clusters, and
what messages look like.

python -m tests.recorded.answers     write tests/recorded/answers.json.gz with the code of this tree
"""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from moto import mock_aws

from chalicelib.cli.main import main as command
from chalicelib.runtime import messages
from infra.emulators.aws import create_table
from tests.recorded import state
from tests.recorded.plans import cases

FILE = Path(__file__).parent / "answers.json.gz"
LATER = state.NOW + 120.0
DOCUMENT = """\
apiVersion: outscaler.dev/v1
kind: Cluster
metadata: {name: other}
spec:
  mode: active
  kubernetes: {kubeconfigSecret: outscaler/other/kubeconfig}
  providers: {clusterapi: {clusterName: other}}
"""
ABOUT_THE_TABLE = (
    ["get", "clusters"],
    ["get", "claims"],
    ["get", "brake", state.CLUSTER],
    ["get", "groups", state.CLUSTER],
    ["get", "operations", state.CLUSTER],
    ["history", state.CLUSTER],
    ["apply", "DOCUMENT"],
    ["history", "other"],
    ["get", "policy", "other"],
)
EXPLAINED = ("random/0", "random/9", "random/15")
MESSAGES: tuple[Any, ...] = (
    messages.ReconcileMessage("shop", "webhook", 12.5, 2),
    messages.ReconcileMessage("shop"),
    *(messages.ReconcileMessage("shop", cause.value) for cause in messages.Cause),
    messages.ActMessage("shop", "grow-0123456789abcdef0123"),
)


@contextlib.contextmanager
def account() -> Iterator[Any]:
    """The recorded table in an emulated account, two minutes after it was written."""
    given = {
        "AWS_DEFAULT_REGION": "eu-central-2",
        "AWS_ACCESS_KEY_ID": "testing",
        "AWS_SECRET_ACCESS_KEY": "testing",
        "OUTSCALER_TABLE": state.TABLE,
    }
    with mock_aws(), pytest.MonkeyPatch.context() as patch:
        for name, value in given.items():
            patch.setenv(name, value)
        patch.setattr(time, "time", lambda: LATER)
        client = boto3.client("dynamodb")
        create_table(client, state.TABLE)
        state.load(client, state.recorded()["items"])
        yield client


def said(*words: str) -> list[str]:
    """Exit code and lines on standard output, which is JSON."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
        code = command([*words, "-o", "json"])
    return [f"exit {code}", *out.getvalue().splitlines()]


def answers() -> dict[str, list[str]]:
    """All answers by their command, and messages by their type."""
    found: dict[str, list[str]] = {}
    with tempfile.TemporaryDirectory() as made, account() as client:
        document = Path(made) / "policy.yaml"
        document.write_text(DOCUMENT)
        for words in ABOUT_THE_TABLE:
            found[" ".join(words)] = said(
                *(str(document) if word == "DOCUMENT" else word for word in words)
            )
        stored = state.unpacked(state.items(client))
        found["rows of apply"] = [
            json.dumps(row, sort_keys=True)
            for rows in stored.values()
            for row in rows
            if "other" in (row["cluster"]["S"], row["item"]["S"])
        ]
    for case in cases():
        if case.name in EXPLAINED:
            found |= _explained(case)
    found["messages"] = [messages.encode(each).decode() for each in MESSAGES]
    return found


def _explained(case: Any) -> dict[str, list[str]]:
    found = {}
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        words = ["--snapshot", made, *case.fill(folder), "--now", case.times[0]]
        nodes = json.loads((folder / "nodes.json").read_text())["items"]
        pods = [
            pod
            for pod in json.loads((folder / "pods.json").read_text())["items"]
            if "nodeName" not in pod["spec"]
        ]
        asked = [
            ("group", "g0"),
            *(("node", each["metadata"]["name"]) for each in nodes[:3]),
            *(
                ("pod", f"{each['metadata']['namespace']}/{each['metadata']['name']}")
                for each in pods[:4]
            ),
        ]
        for kind, name in asked:
            found[f"{case.name} explain {kind} {name}"] = said("explain", kind, name, *words)
    return found


def recorded() -> dict[str, list[str]]:
    """The recording."""
    made: dict[str, list[str]] = json.loads(gzip.decompress(FILE.read_bytes()))
    return made


def main() -> None:
    """Make the recording."""
    FILE.write_bytes(
        gzip.compress(json.dumps(answers(), sort_keys=True, indent=1).encode(), 9, mtime=0)
    )


if __name__ == "__main__":
    main()
