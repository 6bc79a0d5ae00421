"""The commands of operators against a table: pause, resume, retry, login,
history, and the last decision.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import msgspec
import pytest
from moto import mock_aws

from chalicelib.cli.commands import history
from chalicelib.cli.commands.history import JournalFilter
from chalicelib.cli.main import main
from chalicelib.journal import carry_over
from chalicelib.journal.carry_over import CarryOver
from chalicelib.journal.journal import plan_entry
from chalicelib.model.disruption_reason import DisruptionReason
from chalicelib.model.memory import Backoff, FailedRemoval, GroupMemory, Memory, ReplacementState
from chalicelib.model.overview import ClusterOverview, GroupOverview
from chalicelib.model.pause import PausedPart
from chalicelib.model.plan import LifecycleVerdict
from chalicelib.model.policy_permissions import STRICT
from chalicelib.model.reason import Reason, ReasonCode
from chalicelib.model.timestamps import format_time
from chalicelib.policy.load import load
from chalicelib.store import JournalEntry, Store
from chalicelib.store.gauge_ring import GaugePoint
from infra.emulators.aws import create_table
from tests.builders import NOW as BUILT
from tests.builders import cluster
from tests.unit.plan.consolidation_fixture import decide, fixture, one_beside_a_full_one
from tests.unit.policy.policy_documents import AMBIGUOUS, GOOD

Said = pytest.CaptureFixture[str]
NOW = 1_795_000_000.0
TABLE = "outscaler-dev-state"
NAME = "prod-geneva"
ME = "arn:aws:sts::123456789012:user/moto"  # the caller in moto
SHADOW = GOOD.replace("mode: active", "mode: shadow")


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Store]:
    for name, value in {
        "AWS_DEFAULT_REGION": "eu-central-2",
        "AWS_ACCESS_KEY_ID": "testing",
        "AWS_SECRET_ACCESS_KEY": "testing",
        "OUTSCALER_TABLE": TABLE,
        "OUTSCALER_PROFILE": str(tmp_path / "profile.json"),
    }.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("AWS_REGION", raising=False)
    monkeypatch.setattr("time.time", lambda: NOW)
    with mock_aws():
        create_table(boto3.client("dynamodb"), TABLE)
        for queue in ("reconcile", "act_clusterapi"):
            boto3.client("sqs").create_queue(QueueName=f"outscaler-dev-{queue}")
        store = Store(TABLE, clock=lambda: NOW)
        store.deployment_settings().publish(STRICT)
        store.policies.put(NAME, SHADOW, "d", None)
        yield store


def answer(capsys: Said, *arguments: str) -> Any:
    """The JSON that the command prints."""
    capsys.readouterr()
    assert main([*arguments, "-o", "json"]) == 0
    return json.loads(capsys.readouterr().out)


def refusal(capsys: Said, *arguments: str) -> str:
    """The one line that the command prints on standard error."""
    capsys.readouterr()
    assert main(arguments) == 2
    return capsys.readouterr().err.strip()


def messages(queue: str) -> list[Any]:
    sqs = boto3.client("sqs")
    url = sqs.get_queue_url(QueueName=f"outscaler-dev-{queue}")["QueueUrl"]
    found = sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10).get("Messages", [])
    return [json.loads(each["Body"]) for each in found]


def last(store: Store) -> JournalEntry:
    return store.journal.recent(NAME, 1)[0]


def remember(store: Store, memory: Memory) -> None:
    lease = store.leases.acquire(NAME, "pass", 60)
    store.memory.save(NAME, store.memory.load(NAME), memory, (), lease)
    store.leases.release(lease)


def decided(store: Store, decided_at: float = NOW - 600, group: str = "web") -> None:
    """The last decision: web grows for two pods, one pod fits nowhere, idle
    nodes stay. group: web's id."""
    build = (
        cluster()
        .node("busy", "4", group=group)
        .node("idle", "4", group=group)
        .running("busy", 1, "3", name="app")
    )
    build.group(group, max=5).pending(2, "3800m", name="wide").pending(1, "64", name="huge")
    plan = build.plan()
    store.journal.append(NAME, plan_entry(_moved(plan, decided_at)))
    for at in range(3):
        store.journal.append(
            NAME,
            JournalEntry(at=decided_at + 1 + at, kind="operation", group=group, facts={"n": at}),
        )
    overview = ClusterOverview(decided_at, (GroupOverview(group, "web", aliases=("web-pool",)),))
    store.gauge_rings.add(NAME, GaugePoint(decided_at, 2, 0, 2), overview, seen=0.0)
    lease = store.leases.acquire(NAME, "pass", 60)
    left = carry_over.write(CarryOver(decided=decided_at))
    store.leases.release(lease, passed_at=NOW - 20, carry_over=left)


def _moved(plan: Any, at: float) -> Any:
    assert plan.at == BUILT
    return msgspec.structs.replace(plan, at=at, cluster=NAME)


def test_pause_is_stored_shown_and_written_to_the_journal_with_its_author(
    store: Store, capsys: Said
) -> None:
    until = format_time(NOW + 7200)
    assert main(["pause", NAME, "--for", "2h", "--reason", "release test"]) == 0
    assert capsys.readouterr().out == f"{NAME}: PAUSED until {until} by {ME}: release test\n"
    entry = last(store)
    assert (entry.kind, entry.facts) == (
        "pause",
        {"until": until, "part": "all", "reason": "release test", "by": ME},
    )
    assert main(["get", "clusters"]) == 0
    assert (
        capsys.readouterr().err.splitlines()[0]
        == f"{NAME}: PAUSED until {until} by {ME}: release test"
    )
    assert answer(capsys, "get", "clusters")[0]["pauses"][0]["until"] == until
    # GitOps has nothing to undo
    assert store.policies.current(NAME) == store.policies.version(NAME, 1)


def test_parts_of_a_cluster_are_paused_and_resumed_separately(store: Store, capsys: Said) -> None:
    assert main(["pause", NAME, "--removals", "--reason", "a"]) == 0
    decided(store)
    assert main(["pause", NAME, "--group", "web", "--reason", "b"]) == 0
    # replaces the first
    assert main(["pause", NAME, "--removals", "--for", "1h", "--reason", "c"]) == 0
    found = {(each.part, each.group): each.reason for each in store.pauses.current(NAME)}
    assert found == {(PausedPart.REMOVALS, ""): "c", (PausedPart.ALL, "web"): "b"}
    assert [
        each["group"] for each in answer(capsys, "resume", NAME, "--group", "web")["ended"]
    ] == ["web"]
    assert [each.part for each in store.pauses.current(NAME)] == [PausedPart.REMOVALS]


@pytest.mark.parametrize(
    "command",
    [
        ("pause", NAME, "--group", "wep", "--reason", "b"),
        ("resume", NAME, "--group", "wep"),
        ("history", NAME, "--group", "wep"),
        ("history", NAME, "--follow", "--group", "wep"),
        ("retry", NAME, "group", "wep"),
        ("explain", "group", "wep", "--cluster", NAME),
    ],
    ids=["pause", "resume", "history", "follow", "retry", "explain"],
)
def test_group_that_does_not_exist_is_refused_with_the_nearest_name(
    store: Store, capsys: Said, command: tuple[str, ...]
) -> None:
    decided(store)
    said = refusal(capsys, *command)
    assert "no node group is called 'wep'; did you mean web?" in said
    assert store.pauses.current(NAME) == ()
    assert last(store).kind != "pause"


def test_group_that_does_not_exist_is_refused_with_all_names_where_none_is_near(
    store: Store, capsys: Said
) -> None:
    decided(store)
    said = refusal(capsys, "pause", NAME, "--group", "database", "--reason", "b")
    assert (
        "no node group is called 'database'; there are web (for a group that is still to come, "
        "add --unseen)"
    ) in said


@pytest.mark.parametrize("said", ["MachineDeployment/default/web", "web", "WEB", "web-pool"])
def test_commands_take_a_group_by_its_id_its_name_or_an_alias(
    store: Store, capsys: Said, said: str
) -> None:
    key = "MachineDeployment/default/web"
    decided(store, group=key)
    backoff = Backoff(600.0, NOW + 500, NOW - 100, cls="OutOfStock", attempt=2)
    remember(store, Memory(groups={key: GroupMemory(backoff=backoff)}))
    assert (
        store.group_ownership.claim_groups(NAME, [("clusterapi", f"63782e#{key}")], discovered=())
        == {}
    )
    assert main(["pause", NAME, "--group", said, "--reason", "b"]) == 0
    assert [pause.group for pause in store.pauses.current(NAME)] == [key]
    assert [
        pause["group"] for pause in answer(capsys, "resume", NAME, "--group", said)["ended"]
    ] == [key]
    assert answer(capsys, "explain", "group", said, "--cluster", NAME)["verdict"] == "grows"
    assert {
        entry["group"] for entry in answer(capsys, "history", NAME, "--group", said)["journal"]
    } == {key}
    assert answer(capsys, "retry", NAME, "group", said)["name"] == key
    assert last(store).group == key
    assert answer(capsys, "release", NAME, "--claim", said)["claim"] == f"63782e#{key}"


def test_name_of_several_groups_is_refused_with_their_names_even_for_groups_to_come(
    store: Store, capsys: Said
) -> None:
    groups = (
        GroupOverview("a1", "web", "exoscale", "ch-1"),
        GroupOverview("b2", "web", "exoscale", "ch-2"),
    )
    store.gauge_rings.add(
        NAME, GaugePoint(NOW - 300, 2, 0, 2), ClusterOverview(NOW - 300, groups), seen=0.0
    )
    refused = refusal(capsys, "pause", NAME, "--group", "web", "--unseen", "--reason", "b")
    assert refused == "--group: 'web' is 2 node groups; write one of web/ch-1, web/ch-2"
    assert store.pauses.current(NAME) == ()


def test_node_that_does_not_exist_is_not_tried_again(store: Store, capsys: Said) -> None:
    decided(store)
    said = refusal(capsys, "retry", NAME, "node", "bussy")
    assert "no node of the last decision is called 'bussy'; did you mean busy?" in said
    assert "has no failed removal" in refusal(capsys, "retry", NAME, "node", "busy")


def test_group_that_is_still_to_come_is_paused_only_if_a_person_says_so(
    store: Store, capsys: Said
) -> None:
    said = refusal(capsys, "pause", NAME, "--group", "web", "--reason", "b")
    assert f"no pass of {NAME} has seen a node group yet, so that 'web' cannot be checked" in said
    assert "add --unseen" in said
    assert main(["pause", NAME, "--group", "web", "--unseen", "--reason", "b"]) == 0
    assert (
        "the pause is in force for a group that gets this id, and for no other one"
        in capsys.readouterr().err
    )
    assert [each.group for each in store.pauses.current(NAME)] == ["web"]
    decided(store)
    assert main(["pause", NAME, "--group", "web2", "--unseen", "--reason", "b"]) == 0
    assert {each.group for each in store.pauses.current(NAME)} == {"web", "web2"}
    assert [
        each["group"] for each in answer(capsys, "resume", NAME, "--group", "web2")["ended"]
    ] == ["web2"]


def test_group_that_only_the_memory_or_the_journal_knows_is_no_mistake(
    store: Store, capsys: Said
) -> None:
    remember(store, Memory(groups={"db": GroupMemory(target=3)}))
    assert main(["pause", NAME, "--group", "db", "--reason", "b"]) == 0
    store.journal.append(NAME, JournalEntry(at=NOW - 5, kind="operation", group="gone", facts={}))
    assert [
        each["group"] for each in answer(capsys, "history", NAME, "--group", "gone")["journal"]
    ] == ["gone"]
    assert answer(capsys, "history", NAME, "--group", "db")["journal"][0]["kind"] == "pause"
    assert "is not in back-off" in refusal(capsys, "retry", NAME, "group", "db")


def test_resume_twice_is_harmless_and_says_so(store: Store, capsys: Said) -> None:
    assert main(["pause", NAME, "--reason", "a"]) == 0
    assert main(["resume", NAME]) == 0
    assert "1 pause ended" in capsys.readouterr().out
    assert {each.kind for each in store.journal.recent(NAME)} == {"pause", "resume"}
    before = store.journal.recent(NAME)
    assert main(["resume", NAME]) == 0
    assert "not paused; nothing to resume" in capsys.readouterr().out
    assert store.journal.recent(NAME) == before


def test_resume_says_what_the_next_pass_is_expected_to_do(store: Store, capsys: Said) -> None:
    decided(store)
    assert main(["pause", NAME, "--reason", "a"]) == 0
    data = answer(capsys, "resume", NAME)
    assert [each["group"] for each in data["expected"]["grow"]] == ["web"]
    assert data["expected"]["at"] == format_time(NOW - 600)


def test_resume_with_a_mode_stores_a_version_that_keeps_the_rest_of_the_text(
    store: Store, capsys: Said
) -> None:
    assert main(["resume", NAME, "--mode", "off"]) == 0
    stored = store.policies.current(NAME)
    assert stored is not None
    assert (stored.version, stored.text) == (2, SHADOW.replace("mode: shadow", 'mode: "off"'))
    assert answer(capsys, "resume", NAME, "--mode", "off")["mode"] == "off"
    assert store.policies.current(NAME) == stored


def test_resume_with_a_mode_that_writes_the_document_anew_keeps_its_values(
    store: Store, capsys: Said
) -> None:
    before = SHADOW.replace("mode: shadow", "mode:\n    shadow") + AMBIGUOUS
    store.policies.put(NAME, before, "d2", 1)
    assert answer(capsys, "resume", NAME, "--mode", "off")["mode"] == "off"
    stored = store.policies.current(NAME)
    assert stored is not None
    assert load(stored.text, place="")[0] == load(before.replace("shadow", "off"), place="")[0]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ("pause nope --reason a", "nope: no such cluster; known: prod-geneva"),
        ("pause prod-geneva", "outscaler pause: the following arguments are required: --reason"),
        (
            "pause prod-geneva --reason a --for 31d",
            "argument --for: '31d' is not a duration from 1m to 720h",
        ),
        ("pause prod-geneva --reason a --removals --growth", "not allowed with argument"),
        ("retry prod-geneva group web", "NAME: no pass of prod-geneva has seen a node group yet"),
        ("retry prod-geneva node w-1", "node w-1: has no failed removal that is waited for"),
        ("retry prod-geneva operation o-1", "operation o-1: is not an open operation"),
        ("explain pod a --cluster nope", "nope: no such cluster"),
        (
            "explain pod a --cluster prod-geneva",
            "prod-geneva: no pass has been made yet; outscaler plan --kubeconfig FILE",
        ),
        ("get nodes prod-geneva", "prod-geneva: no pass has been made yet"),
    ],
)
def test_wrong_command_of_an_operator_is_one_line(
    store: Store, capsys: Said, arguments: str, says: str
) -> None:
    del store
    said = refusal(capsys, *arguments.split(" "))
    assert says in said
    assert "\n" not in said


def test_reason_of_a_pause_is_bounded_and_printable(store: Store, capsys: Said) -> None:
    assert "--reason: has 201 characters" in refusal(capsys, "pause", NAME, "--reason", "x" * 201)
    assert "--reason: has" in refusal(capsys, "pause", NAME, "--reason", "a\u202eb")
    assert store.pauses.current(NAME) == ()


def test_retry_of_a_group_ends_its_backoff_and_wakes_the_cluster_once(
    store: Store, capsys: Said
) -> None:
    backoff = Backoff(600.0, NOW + 500, NOW - 100, cls="OutOfStock", attempt=2)
    remember(store, Memory(groups={"web": GroupMemory(backoff=backoff)}))
    data = answer(capsys, "retry", NAME, "group", "web")
    assert (data["was"], data["woken"]) == (
        f"until {format_time(NOW + 500)} (OutOfStock, attempt 2)",
        True,
    )
    assert [each["reason"] for each in messages("reconcile")] == ["person"]
    after = store.memory.load(NAME).groups["web"].backoff
    assert after is not None
    assert (after.until < NOW, after.attempt, after.duration) == (True, 2, 600.0)
    assert (last(store).kind, last(store).group, last(store).facts["by"]) == ("retry", "web", ME)


def test_retry_of_a_node_ends_the_wait_after_a_failed_removal(store: Store, capsys: Said) -> None:
    remember(
        store,
        Memory(groups={"web": GroupMemory(failed_removals={"w-1": FailedRemoval(NOW + 60, 2)})}),
    )
    assert (
        answer(capsys, "retry", NAME, "node", "w-1")["was"]
        == f"until {format_time(NOW + 60)} (2 failures)"
    )
    assert store.memory.load(NAME).groups["web"].failed_removals["w-1"].until == NOW
    assert "did you mean w-1?" not in refusal(capsys, "retry", NAME, "node", "w-1")


def test_last_decision_is_explained_without_access_to_the_cluster(
    store: Store, capsys: Said
) -> None:
    decided(store)
    assert main(["explain", "pod", "default/huge-00003", "--cluster", NAME]) == 0
    said = capsys.readouterr().out
    assert said.startswith(
        f"Decided at {format_time(NOW - 600)}, and the same in the pass of {format_time(NOW - 20)}."
    )
    assert "Pod default/huge-00003 has no place" in said
    data = answer(capsys, "explain", "node", "busy", "--cluster", NAME)
    assert (data["verdict"], data["confirmedAt"]) == ("stays", format_time(NOW - 20))
    assert answer(capsys, "explain", "group", "web", "--cluster", NAME)["verdict"] == "grows"
    assert "did you mean" in refusal(capsys, "explain", "node", "bussy", "--cluster", NAME)


def test_last_decision_explains_consolidation_with_the_replacement_as_it_is_now(
    store: Store, capsys: Said
) -> None:
    result = decide(fixture(one_beside_a_full_one()))
    store.journal.append(NAME, plan_entry(_moved(result.plan, NOW - 60)))
    [row] = result.memory.replacements.values()
    waits = msgspec.structs.replace(row, state=ReplacementState.WAITING, since=NOW - 30)
    remember(store, Memory(replacements={row.id: waits}))
    data = answer(capsys, "explain", "node", "a", "--cluster", NAME)
    assert any("Replace a by 1 of s: saves 0.10 an hour (50%)" in line for line in data["says"])
    assert [shown["state"] for shown in data["consolidation"]["replacements"]] == ["waiting"]
    stays = answer(capsys, "explain", "node", "b", "--cluster", NAME)
    assert stays["consolidation"]["reason"]["code"] == "NotWorthDisruption"


def test_last_decision_explains_why_a_needed_node_should_go(store: Store, capsys: Said) -> None:
    plan = _moved(
        cluster().node("busy", "4").node("idle", "4").running("busy", 1, "3").group("g").plan(),
        NOW - 60,
    )
    closed = Reason.of(ReasonCode.OUTSIDE_WINDOW, window="night", until=NOW + 60)
    verdict = LifecycleVerdict("busy", DisruptionReason.EXPIRED, NOW - 3600, closed)
    store.journal.append(NAME, plan_entry(msgspec.structs.replace(plan, lifecycle=(verdict,))))
    remember(store, Memory())
    data = answer(capsys, "explain", "node", "busy", "--cluster", NAME)
    assert any(
        line.startswith(f"It is too old since {format_time(NOW - 3600)}, and waits: ")
        for line in data["says"]
    )
    assert data["lifecycle"]["held"]["code"] == "MaintenanceWindow"
    assert "lifecycle" not in answer(capsys, "explain", "node", "idle", "--cluster", NAME)


def test_nodes_and_waiting_pods_of_the_last_decision_are_listed(store: Store, capsys: Said) -> None:
    decided(store)
    nodes = answer(capsys, "get", "nodes", NAME)
    assert {each["node"]: each["decision"] for each in nodes["nodes"]} == {
        "busy": "stays",
        "idle": "stays",
    }
    pods = {each["pod"]: each["decision"] for each in answer(capsys, "get", "pods", NAME)["pods"]}
    assert pods["default/huge-00003"] == "unschedulable"
    assert set(pods.values()) == {"unschedulable", "newNode", "fitsExisting"}
    assert main(["get", "pods", NAME]) == 0
    assert "Decided at" in capsys.readouterr().err


def test_history_is_filtered_by_kind_group_and_operation(store: Store, capsys: Said) -> None:
    decided(store)
    assert main(["pause", NAME, "--reason", "a"]) == 0
    journal = answer(
        capsys, "history", NAME, "--kind", "operation", "--group", "web", "--limit", "2"
    )["journal"]
    assert [each["facts"] for each in journal] == [{"n": 2}, {"n": 1}]
    assert [
        each["kind"] for each in answer(capsys, "history", NAME, "--kind", "pause")["journal"]
    ] == ["pause"]
    assert answer(capsys, "history", NAME, "--since", "5m", "--kind", "plan")["journal"] == []


def test_followed_history_prints_each_line_once_and_in_order(store: Store, capsys: Said) -> None:
    decided(store)

    def later(seconds: float) -> None:
        assert seconds == history.EVERY
        count = len(store.journal.recent(NAME))
        store.journal.append(
            NAME, JournalEntry(at=NOW + count, kind="operation", facts={"n": count})
        )

    history.follow(store, NAME, JournalFilter(kinds=("operation",)), 2, "json", later, rounds=3)
    shown = [json.loads(line)["facts"]["n"] for line in capsys.readouterr().out.splitlines()]
    assert shown == [1, 2, 4, 5]


def test_login_keeps_the_table_and_the_region_for_later_commands(
    store: Store, capsys: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    del store
    data = answer(capsys, "login", "dev")
    assert (data["table"], data["region"]) == (TABLE, "eu-central-2")
    monkeypatch.delenv("OUTSCALER_TABLE")
    monkeypatch.delenv("AWS_DEFAULT_REGION")
    assert [each["name"] for each in answer(capsys, "get", "clusters")] == [NAME]
    monkeypatch.setenv("OUTSCALER_TABLE", "another")
    # the environment takes precedence
    assert "resource not found" in refusal(capsys, "get", "clusters")
    monkeypatch.delenv("OUTSCALER_TABLE")
    assert answer(capsys, "login", "--forget") == {"removed": True}
    assert "run outscaler login STACK once" in refusal(capsys, "get", "clusters")


def test_login_to_an_unknown_stack_names_what_was_looked_for(store: Store, capsys: Said) -> None:
    del store
    said = refusal(capsys, "login", "prod")
    assert "no table outscaler-prod-state, and no stack of this name" in said
    assert "is not the name of a stack" in refusal(capsys, "login", "../x")


def test_profile_that_is_not_one_is_an_error_that_names_the_file(
    store: Store, capsys: Said, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    del store
    (tmp_path / "profile.json").write_text("{")
    monkeypatch.delenv("OUTSCALER_TABLE")
    assert "profile.json: cannot be read" in refusal(capsys, "get", "clusters")


def test_apply_requests_the_first_pass(store: Store, tmp_path: Path, capsys: Said) -> None:
    del store
    file = tmp_path / "policy.yaml"
    file.write_text(SHADOW)
    assert main(["apply", str(file)]) == 0
    assert [message["reason"] for message in messages("reconcile")] == ["person"]
    assert main(["apply", str(file)]) == 0
    assert messages("reconcile") == [], "the same text again changes nothing"
    capsys.readouterr()


@pytest.mark.parametrize(("before", "requested"), [("active", 1), ("shadow", 0)])
def test_apply_of_mode_off_requests_a_pass_if_passes_have_acted(
    store: Store, tmp_path: Path, capsys: Said, before: str, requested: int
) -> None:
    current = store.policies.current(NAME)
    version = current.version if current is not None else None
    store.policies.put(NAME, GOOD.replace("mode: active", f"mode: {before}"), "d0", version)
    file = tmp_path / "policy.yaml"
    file.write_text(GOOD.replace("mode: active", "mode: 'off'"))
    assert main(["apply", str(file)]) == 0
    assert len(messages("reconcile")) == requested
    capsys.readouterr()


def test_apply_without_a_queue_stores_the_policy_and_says_so(
    store: Store, tmp_path: Path, capsys: Said
) -> None:
    sqs = boto3.client("sqs")
    sqs.delete_queue(QueueUrl=sqs.get_queue_url(QueueName="outscaler-dev-reconcile")["QueueUrl"])
    file = tmp_path / "policy.yaml"
    file.write_text(SHADOW)
    assert main(["apply", str(file)]) == 0
    assert "the first one follows within a minute" in capsys.readouterr().err
    assert store.policies.current(NAME) is not None
