"""A cluster whose passes fail is reported as failing, with the cause, in all views."""

from __future__ import annotations

import json
from typing import Any

import pytest

from chalicelib.cli.main import main
from chalicelib.cluster.errors import ClusterError, Unavailable
from chalicelib.functions import read_api
from chalicelib.model.timestamps import format_time
from chalicelib.passes.reconciler import handle
from chalicelib.runtime.messages import ReconcileMessage, encode
from tests.functional.operations.harness import START, OperationHarness


class Refusing:
    """Providers that cannot be built while `error` is set, as when the cluster cannot be read."""

    def __init__(self, stage: OperationHarness) -> None:
        self.error: Exception | None = None
        working = stage.providers

        def build() -> Any:
            if self.error is not None:
                raise self.error
            return working()

        stage.providers = build


@pytest.fixture
def stage(moto_stage: OperationHarness) -> OperationHarness:
    """One of the tests runs a command, which has a botocore client."""
    return moto_stage


@pytest.fixture
def refusing(stage: OperationHarness) -> Refusing:
    stage.group(1)
    return Refusing(stage)


def run_pass(stage: OperationHarness) -> None:
    """Runs one scheduled pass, a minute after the last."""
    stage.clock.advance(60.0)
    body = encode(ReconcileMessage(stage.name, "schedule", stage.clock()))
    try:
        handle(body.decode(), stage.runtime)
    except (ClusterError, RuntimeError):
        return


def shown(stage: OperationHarness) -> dict[str, Any]:
    """The cluster's row of GET /clusters."""
    rows = read_api.clusters(stage.runtime).body["clusters"]
    return dict(next(row for row in rows if row["name"] == stage.name))


def journal(stage: OperationHarness) -> list[dict[str, Any]]:
    return [
        dict(entry.facts)
        for entry in reversed(stage.store.journal.recent(stage.name))
        if entry.kind == "pass"
    ]


def test_cluster_health_is_failing_with_class_and_start_while_passes_fail(
    stage: OperationHarness, refusing: Refusing
) -> None:
    run_pass(stage)
    good = format_time(stage.clock())
    assert (shown(stage)["health"], shown(stage)["lastSuccess"], shown(stage)["lastError"]) == (
        "ok",
        good,
        None,
    )
    refusing.error = Unavailable("no answer from api.shop")
    run_pass(stage)
    first = format_time(stage.clock())
    run_pass(stage)
    row = shown(stage)
    assert row["health"] == f"failing: Unavailable since {first}"
    assert (row["lastPass"], row["lastSuccess"]) == (format_time(stage.clock()), good)
    assert row["lastError"] == {
        "class": "Unavailable",
        "message": "no answer from api.shop",
        "since": first,
        "at": format_time(stage.clock()),
        "failures": 2,
    }


def test_cluster_that_fails_from_its_first_pass_is_never_ok(
    stage: OperationHarness, refusing: Refusing
) -> None:
    refusing.error = Unavailable("down")
    run_pass(stage)
    body = read_api.cluster(stage.name, stage.runtime).body
    assert body["health"].startswith("failing: Unavailable since ")
    assert body["lastSuccess"] is None


def test_journal_has_only_the_first_failure_and_the_recovery(
    stage: OperationHarness, refusing: Refusing
) -> None:
    run_pass(stage)
    refusing.error = Unavailable("down")
    for _ in range(3):
        run_pass(stage)
    refusing.error = None
    for _ in range(2):
        run_pass(stage)
    since = format_time(START + 120.0)
    assert journal(stage) == [
        {"state": "failing", "class": "Unavailable", "message": "down"},
        {
            "state": "recovered",
            "class": "Unavailable",
            "since": since,
            "failures": 3,
            "seconds": 180.0,
        },
    ]
    assert (shown(stage)["health"], shown(stage)["lastError"]) == ("ok", None)


def test_text_of_an_unexpected_error_appears_only_in_the_log(
    stage: OperationHarness, refusing: Refusing
) -> None:
    refusing.error = RuntimeError("object with a password in its repr")
    run_pass(stage)
    error = shown(stage)["lastError"]
    assert (error["class"], error["message"]) == (
        "RuntimeError",
        "unexpected; the function's log has the details",
    )


def test_get_clusters_command_shows_the_failure(
    stage: OperationHarness, refusing: Refusing, capsys: pytest.CaptureFixture[str]
) -> None:
    refusing.error = Unavailable("down")
    run_pass(stage)
    since = format_time(stage.clock())
    assert main(["get", "clusters", "--table", stage.store.table.name, "-o", "json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    [row] = [each for each in rows if each["name"] == stage.name]
    # "late" is accepted too, because the command uses the real clock
    assert row["health"].endswith(f"failing: Unavailable since {since}")
    assert (row["lastError"]["message"], row["lastSuccess"]) == ("down", None)
    assert main(["get", "--table", stage.store.table.name]) == 0
    [line] = [text for text in capsys.readouterr().out.splitlines() if text.startswith(stage.name)]
    assert " no passes for " in line
    assert "Unavailable: down" in line
