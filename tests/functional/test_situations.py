"""The first line that somebody reads on each surface names the true cause, and what to type."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.functional.situations import CLUSTER, SITUATIONS, Situation, played

HEALTH = {
    "maximum": "14 pods without a node",
    "sold-out": "3 pods without a node",
    "webhook": "ok",
    "budget": "3 nodes blocked by a budget",
    "vendor-down": "1 vendor not read",
    "credentials": "1 vendor not read",
    "never-started": "no passes for 34m",
    "paused": "paused",
    "burst": "node coming for 54 pods",
    "spot-wave": "node coming for 5 pods",
}
"""What `get` and the page's tag say."""
CAUSES = {
    "maximum": ("pods", "pool-07: max node group size reached (max 2); 13 other groups: labels 13"),
    "sold-out": ("pods", "burst: in backoff after failed scale-up"),
    "webhook": ("groups", 'admission webhook "guard.example.org" denied the request'),
    "budget": ("nodes", "(default/web: it needs all 3 of its pods, so it never will)"),
    "vendor-down": ("pods", "alicloud is not read, so its groups are unknown: Transient"),
    "credentials": ("pods", "alicloud is not read, so its groups are unknown: Unauthorized"),
    "paused": ("pods", "paused: group workers would grow"),
    "burst": ("pods", "group workers grows"),
    "spot-wave": ("nodes", "its vendor takes it back"),
}
"""The table that says why, and its words about the first object in trouble."""
NEEDS = {
    "maximum": "outscaler explain pod default/web-",
    "sold-out": "outscaler explain pod default/reports-",
    "budget": "outscaler explain node workers-",
    "vendor-down": "outscaler get groups shop",
    "credentials": "outscaler get groups shop",
    "never-started": "aws logs tail",
}
"""The command of the page's first row under "Needs you"; nothing needs anybody elsewhere."""
NOTICES = {
    "sold-out": ("group.failed", "sold out"),
    "credentials": ("provider.unauthorized", "InvalidAccessKeyId"),
    "never-started": ("cluster.late", "no pass"),
}


@pytest.fixture(scope="module", params=sorted(SITUATIONS))
def situation(request: pytest.FixtureRequest) -> Iterator[tuple[str, Situation]]:
    """Each situation, after its trouble has begun."""
    with played(request.param) as here:
        yield request.param, here


def test_every_situation_has_its_words() -> None:
    assert set(HEALTH) == set(SITUATIONS)
    assert {*CAUSES, "never-started"} == set(SITUATIONS)


def test_command_and_page_say_the_same_health(situation: tuple[str, Situation]) -> None:
    name, here = situation
    row = here.command("get")[1].splitlines()[1]
    assert HEALTH[name] in row
    tag = next(line for line in here.page() if line.startswith(f"{CLUSTER} "))
    assert tag.removeprefix(f"{CLUSTER} ") in HEALTH[name]


def test_first_row_about_an_object_names_the_true_cause(situation: tuple[str, Situation]) -> None:
    name, here = situation
    if name not in CAUSES:
        assert here.command("get", "groups", CLUSTER) == (0, "no node group is known yet\n")
        return
    thing, cause = CAUSES[name]
    code, text = here.command("get", thing, CLUSTER, "-o", "wide", columns=0)
    assert code == 0
    assert cause in text.splitlines()[1]


def test_page_needs_somebody_only_where_a_person_can_help(
    situation: tuple[str, Situation],
) -> None:
    name, here = situation
    lines = here.page()
    assert ("Needs you" in lines) is (name in NEEDS)
    if name in NEEDS:
        first = lines.index("Needs you")
        commands = [line for line in lines[first:] if line.endswith("copy")]
        assert commands[0].startswith(NEEDS[name])


def test_page_and_command_say_the_same_of_pods_of_a_paused_cluster() -> None:
    with played("paused") as here:
        lines = here.page()
        _, table = here.command("get", "pods", CLUSTER)
    assert "paused: group workers would grow" in lines
    assert "new node" not in lines
    assert "new node" not in table


def test_page_says_why_a_removal_failed_and_is_tried_again() -> None:
    with played("webhook") as here:
        lines = here.page()
    cause = lines[lines.index("Ends by itself") :][1:4]
    assert any('admission webhook "guard.example.org" denied the request' in line for line in cause)
    assert "outscaler history shop --kind failed copy" in cause


def test_notifications_are_sent_for_what_lasts(situation: tuple[str, Situation]) -> None:
    name, here = situation
    sent = {event["type"].removeprefix("dev.outscaler."): event for event in here.notices}
    if name not in NOTICES:
        assert not set(sent) - {"paused"}
        return
    kind, words = NOTICES[name]
    assert words in sent[kind]["data"]["message"]
    assert sent[kind]["data"]["command"].startswith("outscaler ")
