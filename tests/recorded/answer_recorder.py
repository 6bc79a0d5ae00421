"""Asks commands, routes and pages about an emulated account, and keeps what they answer. Of the
recording of surfaces this is the only module that imports the program itself.

Whatever could differ between two runs is fixed: the clock, the time zone, the width of the
terminal, the environment, and the working directory, which is empty. Answers of commands have the
exit code and both streams, piped and on terminals of 80 columns (without colours) and of 120 (with
them).
"""

from __future__ import annotations

import contextlib
import io
import json
import logging
import os
import pickle
import re
import tempfile
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import boto3
import botocore.client
import pytest
from chalice.test import Client
from moto import mock_aws

from app import app
from chalicelib.cli.main import main as outscaler
from chalicelib.runtime.runtime import from_environment, install
from infra.emulators.aws import create_table
from tests.recorded import state
from tests.terminal import Terminal

TABLE, NOW = "example", 1_795_000_000.0
"""Of deployment.py."""
KEY, BEARER = "k" * 40, "bearer-of-the-recording"
PIPED, NARROW, BROAD = 0, 80, 120
"""Columns of a terminal; PIPED is none."""
TEXTS, DATA = ("table", "wide"), ("json", "yaml")
_READS = ("Get", "BatchGet", "Query", "Scan", "Describe")
_LINK, _ASSET = re.compile(r"/ui/open/[\w.-]+"), re.compile(r"(static/\w+)-[0-9a-f]{16}")

Answers = dict[str, list[str]]


class AnswerRecorder:
    """Keeps answers by their question. folder: the working directory. now: what the clock says."""

    def __init__(self, patch: pytest.MonkeyPatch, folder: Path, now: float) -> None:
        self.folder, self.now, self._patch = folder, now, patch
        self.answers: Answers = {}

    def command(self, *words: str, columns: int = PIPED, title: str = "") -> None:
        """Record what a command answers."""
        out: io.StringIO = Terminal() if columns else io.StringIO()
        err = io.StringIO()
        with self._patch.context() as patch:
            patch.setenv("COLUMNS", str(columns or NARROW))
            if columns == BROAD:
                patch.delenv("NO_COLOR")
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                code = outscaler(words)
        name = (title or " ".join(("outscaler", *words))) + (
            f", {columns} columns" if columns else ""
        )
        mistakes = [f"stderr: {line}" for line in err.getvalue().splitlines()]
        self._keep(name, [f"exit {code}", *out.getvalue().splitlines(), *mistakes])

    def forms(
        self, *words: str, forms: Sequence[str] = (*TEXTS[:1], *DATA), path: str = ""
    ) -> None:
        """Record an answer in these forms, texts in every width. path: also this one of
        jsonpath."""
        for form in (*forms, *([f"jsonpath={path}"] if path else ())):
            for columns in (PIPED, NARROW, BROAD) if form in TEXTS else (PIPED,):
                self.command(*words, *(() if form == "table" else ("-o", form)), columns=columns)

    def set(self, name: str, value: str) -> None:
        """Set a variable of the environment."""
        self._patch.setenv(name, value)

    def watched(self, *words: str, rounds: int = 1) -> None:
        """Record a command that looks again so many times, ten minutes later
        each time, until Ctrl-C."""
        left, before = [600.0] * rounds, self.now

        def waited(_: float) -> None:
            if not left:
                raise KeyboardInterrupt
            self.now += left.pop()

        with self._patch.context() as patch:
            patch.setattr(time, "sleep", waited)
            self.command(*words)
        self.now = before

    @contextlib.contextmanager
    def client(self) -> Iterator[Client]:
        """A client of the routes."""
        queue = boto3.client("sqs").create_queue(QueueName="reconcile")["QueueUrl"]
        environment = {**os.environ, "OUTSCALER_QUEUE_RECONCILE": queue}
        install(from_environment(environment, clock=lambda: self.now))
        logging.disable()
        try:
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", "IAMAuthorizer is not a supported in local mode")
                yield Client(app)
        finally:
            logging.disable(logging.NOTSET)
            install(None)

    def request(
        self,
        client: Client,
        method: str,
        path: str,
        headers: Mapping[str, str] | None = None,
        body: bytes = b"",
        title: str = "",
    ) -> None:
        """Record status, headers and body of a response, without what is drawn by lot."""
        answer = client.http.request(method, path, headers=dict(headers or {}), body=body)
        text = answer.body.decode()
        if answer.headers.get("Content-Type") == "application/json":
            text = json.dumps(json.loads(text), indent=1, ensure_ascii=False)
        text = _ASSET.sub(r"\1-HASH", _LINK.sub("/ui/open/CODE", text))
        lines = [f"{name}: {value}" for name, value in sorted(answer.headers.items())]
        self._keep(
            title or f"{method} {path}",
            [f"status {answer.status_code}", *lines, *text.splitlines()],
        )

    def _keep(self, question: str, lines: list[str]) -> None:
        assert question not in self.answers, f"{question} is asked twice"
        assert not any(str(self.folder) in line for line in lines), (
            f"{question} names a folder of this machine"
        )
        self.answers[question] = lines


@contextlib.contextmanager
def recorder(
    items: Mapping[str, Any] | None = None, table: str = TABLE, now: float = NOW
) -> Iterator[AnswerRecorder]:
    """A recorder in an account with these items, which are asked about at `now`; without
    items there is no account."""
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        stack.callback(time.tzset)  # after the environment is as before
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        for name in [name for name in os.environ if name.startswith(("OUTSCALER_", "AWS_"))]:
            patch.delenv(name)
        for name, value in _environment(folder).items():
            patch.setenv(name, value)
        time.tzset()
        patch.chdir(folder)
        made = AnswerRecorder(patch, folder, now)
        if items is not None:
            stack.enter_context(mock_aws())
            patch.setenv("OUTSCALER_TABLE", table)
            _load(items, table)
            _remember_reads(patch)
        patch.setattr(time, "time", lambda: made.now)
        patch.setattr(time, "perf_counter", lambda: 0.0)
        yield made


def _environment(folder: Path) -> dict[str, str]:
    return {
        "AWS_DEFAULT_REGION": "eu-central-2",
        "AWS_ACCESS_KEY_ID": "testing",
        "AWS_SECRET_ACCESS_KEY": "testing",
        "OUTSCALER_PAGE_KEY": "outscaler/page",
        "HOME": str(folder),
        "XDG_CONFIG_HOME": "settings",
        "TZ": "Europe/Zurich",
        "TERM": "xterm",
        "NO_COLOR": "1",
    }


def _load(items: Mapping[str, Any], table: str) -> None:
    client = boto3.client("dynamodb")
    create_table(client, table)
    state.load(client, dict(items))
    secrets = boto3.client("secretsmanager")
    secrets.create_secret(Name="outscaler/page", SecretString=KEY)
    secrets.create_secret(
        Name="outscaler/filled/webhook", SecretString=json.dumps({"bearer": BEARER})
    )


def _remember_reads(patch: pytest.MonkeyPatch) -> None:
    """Answer a request that reads what was read since the last write from memory: an emulated one
    takes most of the time of a command."""
    kind = botocore.client.BaseClient
    ask, known = vars(kind)["_make_api_call"], dict[tuple[str, str], bytes]()

    def remembered(client: Any, operation: str, parameters: dict[str, Any]) -> Any:
        if not operation.startswith(_READS):
            known.clear()
            return ask(client, operation, parameters)
        key = (operation, repr(parameters))
        if key not in known:
            known[key] = pickle.dumps(ask(client, operation, parameters))
        return pickle.loads(known[key])

    patch.setattr(kind, "_make_api_call", remembered)


def session(client: Client, path: str) -> str:
    """The cookie of a session of the pages that a route gives."""
    link = client.http.post(
        path, headers={"Content-Type": "application/json"}, body=b"{}"
    ).json_body["link"]
    return str(client.http.get(link).headers["Set-Cookie"]).partition(";")[0]
