"""Every log line of a failure names the cluster, the request, its server and the credential."""

from __future__ import annotations

import dataclasses
import io
import json
import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from chalicelib.cluster.connect import connect
from chalicelib.functions import read_api
from chalicelib.functions.lambda_entry import each_record
from chalicelib.model.operation import OperationKind
from chalicelib.model.plan import TaintUpdate
from chalicelib.operations import runner
from chalicelib.passes import reconciler, soft_taints
from chalicelib.runtime.log import logger
from chalicelib.runtime.messages import ActMessage, ReconcileMessage, encode
from chalicelib.runtime.runtime import Runtime, install
from infra.emulators.aws_faults import AwsFaults, busy
from tests.functional.operations.harness import OperationHarness


@pytest.fixture
def lines() -> Iterator[Callable[[], list[dict[str, Any]]]]:
    """Warnings and errors in the functions' log so far."""
    kept = io.StringIO()
    handler = logging.StreamHandler(kept)
    handler.setFormatter(logger.registered_formatter)
    logging.getLogger(logger.name).addHandler(handler)

    def read() -> list[dict[str, Any]]:
        reported = [json.loads(line) for line in kept.getvalue().splitlines()]
        return [line for line in reported if line["level"] in {"WARNING", "ERROR", "CRITICAL"}]

    yield read
    logging.getLogger(logger.name).removeHandler(handler)


def deliver(
    body: bytes, work: Callable[[str, Runtime], object], stage: OperationHarness
) -> dict[str, Any]:
    install(stage.runtime)
    try:
        return each_record({"Records": [{"messageId": "m-1", "body": body.decode()}]}, work)
    finally:
        install(None)


def with_token(stage: OperationHarness, token: str) -> None:
    """Puts this token into the cluster's kubeconfig."""
    right = stage.server.headers()["Authorization"].removeprefix("Bearer ")
    text = stage.server.kubeconfig().replace(right, token)
    stage.replace(
        kube_client=lambda policy: connect(
            policy.kubernetes,
            lambda name: text,
            clock=stage.clock,
            sleep=stage.clock.advance,
            jitter=lambda: 0.5,
        )
    )


def test_log_of_a_revoked_token_names_cluster_path_and_secret(
    stage: OperationHarness, lines: Any
) -> None:
    with_token(stage, "revoked")
    deliver(
        encode(ReconcileMessage(stage.name, "schedule", stage.clock())), reconciler.handle, stage
    )
    [line] = [each for each in lines() if each["message"] == "message failed"]
    assert (line["cluster"], line["error"]) == (stage.name, "Unauthorized")
    assert line["asked"].startswith("GET /api/v1/")
    secret = f"outscaler/{stage.name}/kubeconfig"
    assert secret in line["asked"]
    assert "revoked" not in json.dumps(line)
    for shown in (
        read_api.cluster(stage.name, stage.runtime).body,
        read_api.clusters(stage.runtime).body,
    ):
        assert line["asked"].split(" with ")[0] in json.dumps(shown)
        assert secret not in json.dumps(shown)


def test_log_of_a_failed_operation_names_cluster_and_operation(
    stage: OperationHarness, lines: Any
) -> None:
    stage.group(1)
    operation = stage.planned(OperationKind.SCALE_UP, from_size=1, to_size=2)
    faults = AwsFaults()
    broken = dataclasses.replace(
        stage.runtime,
        store=stage.new_store(wrap=faults.wrap),
    )
    faults.instead("update_item", busy("ValidationException"))
    stage.runtime = broken
    failed = deliver(encode(ActMessage(stage.name, operation.spec.id)), runner.handle, stage)
    assert failed["batchItemFailures"]
    [line] = [each for each in lines() if each["message"] == "message failed"]
    assert (line["cluster"], line["operation"]) == (stage.name, operation.spec.id)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b'{"cluster": 7}',
        b'{"cluster": "../x"}',
        b"\xff".decode("latin-1").encode(),
        b'{"cluster":' * 2000,
    ],
)
def test_log_of_a_message_without_a_cluster_says_so(
    body: bytes, stage: OperationHarness, lines: Any
) -> None:
    assert deliver(body, reconciler.handle, stage)["batchItemFailures"] == [
        {"itemIdentifier": "m-1"}
    ]
    [line] = lines()
    assert (line["message"], line["cluster"]) == ("message failed", "unknown")


def test_log_of_a_forbidden_taint_names_the_cluster(stage: OperationHarness, lines: Any) -> None:
    with_token(stage, "revoked")
    policy = stage.runtime.policy(stage.name)
    assert policy is not None
    soft_taints.apply(
        (TaintUpdate("g-1", "soften"),),
        stage.runtime.kube_client(policy),
        policy.options,
        stage.clock,
        stage.clock.advance,
        stage.name,
    )
    [line] = lines()
    assert (line["cluster"], line["asked"].split()[0]) == (stage.name, "GET")
