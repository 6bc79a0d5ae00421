"""All names of a deployment by `chalice deploy` derive from one prefix, and a
malformed prefix is refused.
"""

from __future__ import annotations

import pytest

from chalicelib.functions.lambda_entry import event_source
from chalicelib.model.errors import BadInput
from chalicelib.model.policy_permissions import deployment_of
from chalicelib.model.resource_names import prefix_for, queue_name, secret_prefix, state_table
from chalicelib.store.tables import policy_table_of
from tests.cases import each_row


def test_deployed_names_of_tables_queues_and_secrets_follow_from_the_prefix() -> None:
    prefix = prefix_for("dev")
    assert state_table({"OUTSCALER_PREFIX": prefix}) == "outscaler-dev-state"
    assert (
        policy_table_of(state_table({"OUTSCALER_PREFIX": prefix})) == "outscaler-dev-state-policies"
    )
    assert queue_name(prefix, "act_exoscale") == "outscaler-dev-act_exoscale"
    assert secret_prefix(prefix) == "outscaler/dev/"
    assert deployment_of({"OUTSCALER_PREFIX": prefix}).secret_prefix == "outscaler/dev/"


def test_deployed_name_variable_takes_precedence_over_the_prefix() -> None:
    given = {
        "OUTSCALER_PREFIX": "outscaler-dev",
        "OUTSCALER_TABLE": "other",
        "OUTSCALER_SECRET_PREFIX": "team/",
    }
    assert state_table(given) == "other"
    assert deployment_of(given).secret_prefix == "team/"


def test_deployed_names_without_a_prefix_have_no_table_and_default_secrets() -> None:
    assert state_table({}) == ""
    assert deployment_of({}).secret_prefix == "outscaler/"


def test_deployed_function_names_its_queue_by_prefix_or_placeholder(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("OUTSCALER_PREFIX", raising=False)
    assert event_source("reconcile") == {
        "queue_arn": "arn:aws:sqs:us-east-1:000000000000:reconcile"
    }
    monkeypatch.setenv("OUTSCALER_PREFIX", "outscaler-dev")
    assert event_source("reconcile") == {"queue": "outscaler-dev-reconcile"}


@each_row(
    "prefix", ["dev", "outscaler-", "outscaler-Dev", "outscaler-a_b", f"outscaler-{'a' * 21}"]
)
def test_deployed_malformed_prefix_is_refused_by_its_variable(prefix: str) -> None:
    with pytest.raises(BadInput, match="OUTSCALER_PREFIX"):
        state_table({"OUTSCALER_PREFIX": prefix})


def test_deployed_stage_that_cannot_be_part_of_a_name_is_refused() -> None:
    with pytest.raises(BadInput, match="stage My_Stage"):
        prefix_for("My_Stage")
