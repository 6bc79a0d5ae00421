"""Return value of a queue function for a batch of messages."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from collections.abc import Iterator

import pytest

from chalicelib.functions.lambda_entry import FailuresNotReported, each_record
from chalicelib.model.errors import BadInput
from chalicelib.runtime.runtime import Runtime, build, from_environment, install, runtime
from infra.emulators.aws import environment
from infra.emulators.controllers.clock import ManualClock
from tests.cases import each_row
from tests.source_trees import ROOT


class Nothing:
    """Stands in for a part that the test does not reach."""


@pytest.fixture
def rt() -> Iterator[Runtime]:
    parts: dict[str, object] = {"store": Nothing(), "sender": Nothing(), "read_secret": str}
    # nothing here looks at them
    made = build(clock=ManualClock(0.0), **parts)  # type: ignore[arg-type]
    install(made)
    yield made
    install(None)


def _event(*bodies: str) -> dict[str, object]:
    return {
        "Records": [
            {"messageId": f"m-{number}", "body": body} for number, body in enumerate(bodies)
        ]
    }


@pytest.fixture
def reported(rt: Runtime) -> Runtime:
    """The event source is configured to report batch failures."""
    made = dataclasses.replace(rt, batch_failures_reported=True)
    install(made)
    return made


@pytest.mark.parametrize("bodies", [("a",), ("bad",), ()])
def test_lambda_entry_processes_nothing_if_failures_are_not_reported(
    rt: Runtime, bodies: tuple[str, ...]
) -> None:
    done: list[str] = []
    with pytest.raises(
        FailuresNotReported,
        match=r"^environment: OUTSCALER_BATCH_FAILURES is not reported.*"
        "ReportBatchItemFailures and set OUTSCALER_BATCH_FAILURES=reported",
    ):
        each_record(_event(*bodies), lambda body, here: done.append(body))
    assert done == []
    assert not rt.batch_failures_reported


@each_row(("value", "reported"), [("reported", True), ("", False), ("yes", False), (None, False)])
def test_lambda_entry_trusts_only_the_deployment_setting_for_batch_failures(
    value: str | None, reported: bool
) -> None:
    given = {"OUTSCALER_TABLE": "t", "OUTSCALER_QUEUE_RECONCILE": "https://sqs.example/q"}
    given |= {} if value is None else {"OUTSCALER_BATCH_FAILURES": value}
    with pytest.MonkeyPatch.context() as patch:
        for name, text in environment("http://127.0.0.1:9").items():
            patch.setenv(name, text)
        assert from_environment(given).batch_failures_reported is reported


def test_lambda_entry_returns_only_failed_messages(reported: Runtime) -> None:
    done: list[tuple[str, Runtime]] = []

    def work(body: str, here: Runtime) -> None:
        if body == "bad":
            raise BadInput("message", "is bad")
        if body == "worse":
            raise ZeroDivisionError
        done.append((body, here))

    answer = each_record(_event("a", "bad", "b", "worse"), work)
    assert answer == {"batchItemFailures": [{"itemIdentifier": "m-1"}, {"itemIdentifier": "m-3"}]}
    assert done == [("a", reported), ("b", reported)]


def test_lambda_entry_accepts_an_empty_batch(reported: Runtime) -> None:
    assert each_record({}, lambda body, here: None) == {"batchItemFailures": []}


def test_runtime_names_missing_environment_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    install(None)
    monkeypatch.delenv("OUTSCALER_TABLE", raising=False)
    with pytest.raises(BadInput, match="OUTSCALER_TABLE is not set"):
        runtime()


@each_row(
    ("handler", "collects", "loaded"),
    [("app.app", False, True), ("chalicelib.functions.tick.tick", False, True), ("", True, False)],
)
def test_package_of_handlers_prepares_the_start_of_a_function_only(
    handler: str, collects: bool, loaded: bool
) -> None:
    script = (
        "import gc, sys, chalicelib.functions; print(gc.isenabled(), 'urllib3.util.url' in "
        "sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={"_HANDLER": handler},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == [str(collects), str(loaded)]
