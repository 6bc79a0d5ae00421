"""The policy in infra/huaweicloud lists exactly the actions that the provider uses, and it
suffices for all of them.

Some actions are optional: the cluster's phase, the vendor's add-on, the list of flavours and the
progress of a job are requested but not required.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from chalicelib.model.operation import OperationKind
from chalicelib.model.outcome import Failed, Succeeded
from chalicelib.providers.kit.errors import ProviderError, Unauthorized
from infra.emulators.huaweicloud.models import DELETING
from infra.emulators.vendor_common.dispatcher import LoggedOperation
from tests.operations import ask
from tests.providers.huaweicloud.fixture import HuaweiBench, carried, drive, order, seen

FOLDER = Path(__file__).parents[3] / "infra" / "huaweicloud"
SPARED = frozenset(
    {"cce:cluster:get", "cce:addonInstance:list", "ecs:cloudServerFlavors:get", "cce:job:get"}
)


def statements(name: str) -> list[dict[str, Any]]:
    found: dict[str, Any] = json.loads((FOLDER / f"{name}.json").read_text())
    assert found.keys() == {"Version", "Statement"}
    assert found["Version"] == "1.1"  # of custom policies
    for each in found["Statement"]:
        assert each.keys() == {"Effect", "Action"}
        assert each["Effect"] == "Allow"
    listed: list[dict[str, Any]] = found["Statement"]
    return listed


def actions(name: str) -> frozenset[str]:
    """Returns the actions that a policy allows; each must appear once and without wildcards."""
    found = [action for each in statements(name) for action in each["Action"]]
    assert len(found) == len(set(found))
    assert all(re.fullmatch(r"[a-z]+:[A-Za-z]+:[A-Za-z]+", action) for action in found)
    return frozenset(found)


def everything(bench: HuaweiBench) -> list[LoggedOperation]:
    """Runs every function of the provider and returns the calls that it made."""
    group = bench.add_group("web", size=2, least=1)
    assert seen(bench, group).target == 2
    assert isinstance(
        drive(bench, order(bench, OperationKind.SCALE_UP, group, 2, 4, op="a-0123456789abcdef")),
        Succeeded,
    )
    bench.settle()
    removal = order(
        bench,
        OperationKind.DELETE_NODES,
        group,
        4,
        2,
        *bench.machines(group)[:2],
        op="b-0123456789abcdef",
    )
    removal = carried(removal, ask(bench.provider(), removal))
    late = [node for node in bench.group(group).nodes.values() if node.leaves]
    for node in late:
        # the list of nodes lags behind CCE's work, so that the provider reads the jobs
        node.phase = "Active"
    removal = carried(removal, ask(bench.provider(), removal))
    for node in late:
        node.phase = DELETING
    assert isinstance(drive(bench, removal), Succeeded)
    bench.settle()
    first = bench.machines(group)[0]
    restart = order(bench, OperationKind.RESTART_NODE, group, 2, 2, first, op="c-0123456789abcdef")
    assert isinstance(drive(bench, restart), Succeeded)
    assert seen(bench, group).target == bench.target(group) == 2
    return bench.look()


def denied(calls: list[LoggedOperation]) -> set[str]:
    return {call.action for call in calls if call.status == 403}


@pytest.fixture
def bench() -> Iterator[HuaweiBench]:
    with HuaweiBench(actions=actions("policy")) as made:
        yield made


def test_huawei_policy_lists_exactly_the_used_actions_and_suffices(bench: HuaweiBench) -> None:
    calls = everything(bench)
    assert denied(calls) == set()
    # a job of ECS needs none
    assert {call.action for call in calls if call.action} == actions("policy")


@pytest.mark.parametrize("missing", sorted(actions("policy") - SPARED))
def test_huawei_each_action_of_the_policy_is_needed(missing: str) -> None:
    with HuaweiBench(actions=actions("policy") - {missing}) as bench:
        with pytest.raises((AssertionError, ProviderError)):
            everything(bench)
        assert missing in denied(bench.server.log)


@pytest.mark.parametrize("missing", sorted(SPARED))
def test_huawei_refusal_of_an_optional_action_stops_nothing(missing: str) -> None:
    with HuaweiBench(actions=actions("policy") - {missing}) as bench:
        assert denied(everything(bench)) == {missing}


def test_huawei_policy_without_a_project_needs_one_more_action(bench: HuaweiBench) -> None:
    bench.settings["projectId"] = ""
    bench.add_group("web", size=2)
    with pytest.raises(Unauthorized, match="the project of cn-north-4"):
        bench.provider().observe(bench.nodes())
    assert denied(bench.look()) == actions("policy-project")
    bench.key.permissions = actions("policy") | actions("policy-project")
    assert bench.provider().observe(bench.nodes()).groups


def test_huawei_key_without_permissions_is_refused_and_nothing_changes() -> None:
    with HuaweiBench(actions=frozenset()) as bench:
        group = bench.add_group("web", size=2)
        with pytest.raises(Unauthorized) as raised:
            bench.provider().observe(bench.nodes())
        assert "policy.json" in raised.value.message
        outcome = drive(bench, order(bench, OperationKind.SCALE_UP, group, 2, 3))
        assert isinstance(outcome, Failed)
        assert (outcome.error_class, bench.target(group)) == ("Unauthorized", 2)


def test_huawei_policy_separates_reads_from_changes() -> None:
    reads, changes = (each["Action"] for each in statements("policy"))
    assert all(re.search(r":(get|list)$", action) for action in reads)
    assert not any(re.search(r":(get|list)$", action) for action in changes)
