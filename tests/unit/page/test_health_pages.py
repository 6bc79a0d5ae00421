"""The page says how a cluster is in the words of model/health.py, and nothing that no pass has
seen."""

from __future__ import annotations

import re

import pytest

from chalicelib.model.memory import Backoff, GroupMemory, Memory
from chalicelib.model.pause import Pause, PausedPart
from chalicelib.model.plan import GroupVerdict, Health, Plan, ScaleUp, UnschedulablePods
from chalicelib.model.policy_permissions import STRICT
from chalicelib.model.reason import Reason, ReasonCode
from chalicelib.page.render import Links
from chalicelib.page.routes import PageAnswer, PageRequest, respond
from chalicelib.policy.load import digest
from chalicelib.store import Store
from infra.emulators.example_clusters import NOW, decided, quiet_plan
from infra.emulators.memory_table import MemoryAccount
from tests.unit.page.test_pages import TAG, text, words

POLICY = """\
apiVersion: outscaler.dev/v1
kind: Cluster
metadata: {name: mine}
spec:
  mode: active
  kubernetes: {kubeconfigSecret: outscaler/mine/kubeconfig}
  providers:
    clusterapi: {clusterName: mine}
"""
MAXIMUM = Reason.of(ReasonCode.GROUP_MAX_SIZE, max=5)


def at(store: Store, path: str, now: float = NOW) -> PageAnswer:
    return respond(store, PageRequest(path, {}), now, Links(), STRICT)


def tags(answer: PageAnswer) -> list[tuple[str, str]]:
    return [(tone, word) for tone, word in TAG.findall(text(answer))]


def headings(answer: PageAnswer) -> list[str]:
    return re.findall(r"<h2 [^>]*>([^<]+)</h2>", text(answer))


@pytest.fixture
def store() -> Store:
    """One cluster, `mine`, whose policy was applied at NOW."""
    store = MemoryAccount().store("example", clock=lambda: NOW)
    store.policies.put("mine", POLICY, digest(POLICY), None)
    return store


def remember(store: Store, **groups: GroupMemory) -> None:
    lease = store.leases.acquire("mine", "test", 60.0)
    store.memory.save("mine", Memory(), Memory(groups=groups), (), lease)
    store.leases.release(lease, passed_at=NOW - 22)


# -- passes that never start


def test_cluster_whose_passes_never_start_needs_a_person(store: Store) -> None:
    later = NOW + 2040
    assert tags(at(store, "/", later)) == [("bad", "no passes")]
    page = at(store, "/clusters/mine", later)
    assert tags(page)[0] == ("bad", "no passes")
    assert headings(page)[0] == "Needs you"
    shown = words(page)
    assert "no tick has asked for one" in shown
    assert "aws logs tail /aws/lambda/outscaler-STAGE-tick" in shown
    assert "for 34 min" in shown


@pytest.mark.parametrize("later", [30.0, 2040.0])
@pytest.mark.parametrize(
    "page", ["", "/clusters/mine", "/clusters/mine/nodes", "/clusters/mine/pods"]
)
def test_page_shows_no_number_that_no_pass_has_made(store: Store, page: str, later: float) -> None:
    shown = words(at(store, page or "/", NOW + later))
    assert not re.search(r"\b0 (nodes?|pods?|groups?|ready)\b", shown)
    assert "none in 24 hours" not in shown
    assert "No pod waits" not in shown
    if not page:
        assert "\N{EN DASH} \N{EN DASH} never" in shown
    else:
        assert "not known yet" in shown.lower()


# -- pauses


def test_paused_removals_are_said_once_and_are_no_problem_of_each_group(store: Store) -> None:
    decided(store, "mine", quiet_plan("mine", NOW - 60, groups=14, nodes=28), NOW - 20)
    pause = Pause(NOW + 600, NOW - 60, PausedPart.REMOVALS, reason="release", by="x/kim")
    store.pauses.change("mine", lambda _: (pause,))
    page = at(store, "/clusters/mine")
    assert tags(page)[0] == ("warn", "removals paused")
    shown = words(page)
    assert "with a problem (0)" in shown
    assert shown.count("steady") == 14
    assert shown.count("Removals until") == 1
    assert tags(at(store, "/")) == [("warn", "removals paused")]


# -- back-offs


def back_off(error_class: str, attempt: int = 1) -> GroupMemory:
    backoff = Backoff(300.0, NOW + 240, NOW - 60, error_class, attempt=attempt)
    return GroupMemory(target=1, backoff=backoff)


def with_back_off(store: Store, memory: GroupMemory) -> PageAnswer:
    assert memory.backoff is not None
    cls = memory.backoff.cls
    reason = Reason.of(ReasonCode.GROUP_BACKOFF, until=NOW + 240, error=cls, **{"class": cls})
    plan = Plan(
        id="p",
        cluster="mine",
        at=NOW - 60,
        groups=(GroupVerdict("burst", "clusterapi", 0, 9, 1, ready=1, backoff=reason),),
        health=Health(registered=1, ready=1),
    )
    remember(store, burst=memory)
    decided(store, "mine", plan, NOW - 20)
    return at(store, "/clusters/mine")


def test_back_off_that_ends_by_itself_does_not_need_a_person(store: Store) -> None:
    page = with_back_off(store, back_off("OutOfStock"))
    assert tags(page)[0] == ("warn", "1 group backing off")
    assert "Needs you" not in headings(page)
    assert headings(page)[0] == "Ends by itself"
    assert "sold out; next try" in words(page)


def test_group_that_cannot_grow_needs_a_person(store: Store) -> None:
    page = with_back_off(store, back_off("Unauthorized"))
    assert tags(page)[0] == ("bad", "1 group cannot grow")
    assert headings(page)[0] == "Needs you"
    assert "Ends by itself" not in headings(page)


def test_list_has_the_same_tag_as_the_page_of_the_cluster(store: Store) -> None:
    page = with_back_off(store, back_off("timeout", attempt=3))
    assert tags(page)[0] == tags(at(store, "/"))[0] == ("bad", "1 group cannot grow")


# -- pods


def test_pods_with_a_node_coming_are_counted_apart_on_every_page(store: Store) -> None:
    plan = Plan(
        id="p",
        cluster="mine",
        at=NOW - 60,
        groups=(GroupVerdict("web", "clusterapi", 1, 5, 5, ready=2, upcoming=3),),
        unschedulable=(UnschedulablePods(("shop/left",), {"web": (MAXIMUM,)}),),
        scale_ups=(
            ScaleUp("web", "clusterapi", 2, 5, 5, tuple(f"shop/new-{at}" for at in range(19))),
        ),
        health=Health(registered=2, ready=2),
    )
    decided(store, "mine", plan, NOW - 20)
    page = at(store, "/clusters/mine")
    assert tags(page)[0] == ("warn", "1 pod without a node")
    shown = words(page)
    assert "Waiting pods 20 a node is coming for 19" in shown
    assert tags(at(store, "/")) == [("warn", "1 pod without a node")]
    assert "a node is coming for 19" in words(at(store, "/"))
