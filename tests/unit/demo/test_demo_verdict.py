"""The verdict of the demonstration: a correct run passes, and each error is named."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import pytest

from chalicelib.store.journal import JournalEntry
from infra.demo.console import AT_ONCE, Acted, Consolidated, Departures, Ledger, Opened, names, span
from infra.demo.decision_narrator import Narrator
from infra.demo.expectations import checked
from infra.emulators.memory_table import MemoryAccount

SMALLEST = {"workers": 1}
SECOND = {"burst": "metal"}
LATER = {"m7": "c7"}
RARE, NEXT_TYPE, LARGE = (
    "studio memory.extra-large",
    "studio standard.huge",
    "studio standard.large",
)
CELLAR = "cellar cloud_vps_4"
MANAGED = {NEXT_TYPE: 1, LARGE: 2, CELLAR: 1}
STRIKE = 1_795_294_020.0
CRON = Acted("cronrule", STRIKE + 5.0, ("m7",), 1, STRIKE)
AGAIN = Acted("cronrule", STRIKE + 60.0, ("c7",), 1, STRIKE)
BUSY = Acted("busy", STRIKE + 90.0, ("day",), 2, rate=90.6, ready=2)


BOUGHT = {"workers": 3, "metal": 3, "c7": 1, "day": 2, "lean": 2, "stream": 1, "search": 1}


def _good() -> Ledger:
    return Ledger(
        asked=[
            ("workers", 1, 4),
            ("burst", 0, 2),
            ("metal", 0, 2),
            ("metal", 1, 2),
            ("workers", 4, 1),
            ("m7", 1, 2),
            ("c7", 1, 2),
            ("day", 2, 4),
            ("lean", 0, 1),
            ("stream", 0, 1),
            ("search", 3, 4),
            ("lean", 1, 2),
            *((group, 0, 1) for group in (RARE, *MANAGED)),
        ],
        planned=Counter({**BOUGHT, **MANAGED, RARE: 1, "burst": 2, "m7": 1}),
        bought=Counter({**BOUGHT, **MANAGED}),
        refused=Counter({"burst": 2, "m7": 1, RARE: 1}),
        why={"burst": "NoStock", "m7": "SoldOut", RARE: "No capacity"},
        second_choice={"burst": AT_ONCE, RARE: "not bought at once"},
        lost=Counter(metal=1),
        joined=Counter({**BOUGHT, **MANAGED, "metal": 2}),
        gone=Counter(
            {
                **MANAGED,
                "workers": 3,
                "metal": 2,
                "c7": 1,
                "day": 2,
                "search": 2,
                "legacy": 1,
                "stream-spot": 1,
                "lean": 1,
            }
        ),
        renewed=Counter(search=1, lean=1),
        killed=["act_clusterapi"] * 2,
        woken=1,
        evicted=2,
        ended=Counter(succeeded=4, failed=2),
        failed={"burst", "m7", RARE},
        quiet_writes=[2, 3, 4],
        why_not=["workers: Insufficient cpu"],
        sizes=SMALLEST,
        pending_at=(10.0, 1.0),
        answered_at=(14.0, 1.2),
        strike=STRIKE,
        rules_seen={"kube-system/night/cronrule", "kube-system/night/metricrule", "busy"},
        acted=[CRON, AGAIN, BUSY],
        beside={"metricrule": 42.1},
        notices=[f"group.failed open groups/{group}" for group in SECOND],
        consolidated=Consolidated(
            shadowed=[(1, ("lean",)), (1, ())],
            changes=["asked lean", "drained search", "ready lean", "drained legacy"],
            before=2.5,
            after=1.7,
            bound=1.5,
            saves=0.8,
            stays={"n1": "no cheaper place"},
        ),
        departed=Departures(
            steps=[
                "asked stream",
                "drained stream-spot",
                "ready stream",
                *(
                    f"{step} {group}"
                    for group in ("search", "lean")
                    for step in ("asked", "ready", "drained")
                ),
            ],
            leaves_at=STRIKE + 300.0,
            moved_at=STRIKE + 100.0,
            gone_at=STRIKE + 120.0,
            node="lean-1",
            held="MaintenanceWindow",
            opens_at=STRIKE + 5000.0,
            asked_at=STRIKE + 5020.0,
        ),
        opened=Opened(
            kills=1,
            is_applied=True,
            interrupted={LARGE},
            ran=Counter(MANAGED),
            made=Counter([RARE, NEXT_TYPE, LARGE]),
            existing=Counter([RARE, NEXT_TYPE, LARGE]),
            kept=dict.fromkeys([RARE, NEXT_TYPE, LARGE], 0),
            is_pruned=True,
            left=0,
        ),
    )


def _missing(ledger: Ledger) -> list[str]:
    return [each.words for each in checked(ledger, 2, SMALLEST, SECOND, LATER) if not each.met]


def test_demo_ledger_accepts_a_correct_run() -> None:
    assert _missing(_good()) == []
    reaction = _good().reaction
    assert reaction is not None
    assert (reaction[0], round(reaction[1], 3)) == (4.0, 0.2)


NODES = "every machine became a node, but for the server that never joins and is given back"
IN_FORCE = "the vendor's own example of a HorizontalNodeAutoscaler is in force"
ONCE = "the cron rule ran once, at its minute, and the cpu rule, also true, did not run"
NEXT = "a sold-out flavour's nodes came from the next"
ENOUGH = "the cpu rule added what brings the rate below its threshold, and no more"
FIRST = (
    "a first choice cannot be had (no stock, no quota), and the pass that learns it buys the second"
)
SHADOWED = "in shadow mode, consolidation showed both moves and did nothing"
REPLACED = "a cheaper node was bought and ready before the dear one was drained, and once"
DRAINED = "a node was drained into room that existed"
CHEAPER = "the bill fell by what the moves were to save, and the ledger says so"
EVACUATED = "the pods of the spot node ran elsewhere before its vendor took it back"
REPAIRED = "a sick node's successor was ready before it was drained, and bought once"
RAN = "pods of odd shapes ran on groups of two managed pools, one at each vendor"
SOLD_OUT = "a sold-out machine type was replaced by the next one, in the same pass or the next"
MADE_ONCE = "a function was killed between a Nodepool's creation and its answer, and one exists"
PRUNED = "empty Nodepools stayed until a person pruned them, and no server stayed"
RENEWED = "an old node waited for its window, and its successor came first"


@pytest.mark.parametrize(
    ("change", "missing"),
    [
        (lambda led: led.asked.append(("workers", 4, 7)), "nothing was bought twice"),
        (lambda led: led.bought.update(workers=1), "nothing was bought twice"),
        (
            lambda led: led.killed.pop(),
            "act functions were killed between provider call and record, 2 times",
        ),
        (lambda led: led.joined.update(workers=-1), NODES),
        (lambda led: led.lost.clear(), NODES),
        (lambda led: led.lost.update(metal=1), NODES),
        (lambda led: led.asked.append(("metal", 2, 3)), "nothing was bought twice"),
        (
            lambda led: led.errors.append("tick: RuntimeError"),
            "no dead letters, no function failed",
        ),
        (lambda led: led.dead_letters.update(reconcile=1), "no dead letters, no function failed"),
        (lambda led: led.failed.add("workers"), "every other operation ended well"),
        (lambda led: led.failed.remove("burst"), "every other operation ended well"),
        (lambda led: led.second_choice.update(burst="not bought at once"), FIRST),
        (lambda led: led.second_choice.clear(), FIRST),
        (lambda led: led.refused.clear(), "nothing was bought twice"),
        (lambda led: led.quiet_writes.extend([9] * 9), "a quiet pass writes at most 8 items"),
        (lambda led: led.why_not.clear(), "the pod that fits nowhere got a reason"),
        (
            lambda led: setattr(led, "least_room", -1),
            "pods were moved, and their disruption budget was kept",
        ),
        (lambda led: setattr(led, "unfinished", "chapter 2"), "the story came to its end"),
        (lambda led: setattr(led, "sizes", {"workers": 2}), "what was bought was given back"),
        (lambda led: setattr(led, "woken", 0), "the webhook asked for a pass"),
        (lambda led: led.rules_seen.discard("kube-system/night/cronrule"), IN_FORCE),
        (lambda led: led.rules_wrong.append("refused as a whole"), IN_FORCE),
        (lambda led: led.acted.clear(), ONCE),
        (lambda led: led.acted.append(replace(AGAIN, at=STRIKE + 120.0)), ONCE),
        (lambda led: led.acted.append(replace(AGAIN, due=STRIKE + 86400.0, nodes=0)), ONCE),
        (lambda led: led.acted.append(replace(BUSY, rule="metricrule")), ONCE),
        (lambda led: led.beside.update(metricrule=39.0), ONCE),
        (lambda led: led.refused.update(m7=-1), NEXT),
        (lambda led: led.bought.update(c7=1), NEXT),
        (lambda led: led.bought.update(m7=1), NEXT),
        (lambda led: led.acted.remove(BUSY), ENOUGH),
        (lambda led: led.acted.append(BUSY), ENOUGH),
        (lambda led: led.acted.__setitem__(2, replace(BUSY, nodes=1)), ENOUGH),
        (lambda led: led.acted.__setitem__(2, replace(BUSY, nodes=3)), ENOUGH),
        (lambda led: led.consolidated.shadowed.pop(), SHADOWED),
        (lambda led: setattr(led.consolidated, "changes_in_shadow", 1), SHADOWED),
        (lambda led: led.consolidated.changes.reverse(), REPLACED),
        (lambda led: led.consolidated.changes.append("asked lean"), REPLACED),
        (lambda led: led.consolidated.changes.remove("drained legacy"), REPLACED),
        (lambda led: led.consolidated.changes.remove("drained search"), DRAINED),
        (lambda led: led.consolidated.changes.append("drained search"), DRAINED),
        (lambda led: setattr(led.consolidated, "after", 2.5), CHEAPER),
        (lambda led: setattr(led.consolidated, "saves", 0.6), CHEAPER),
        (lambda led: setattr(led.consolidated, "bound", 1.8), CHEAPER),
        (lambda led: led.consolidated.stays.clear(), "each node that stays has a reason"),
        (lambda led: led.asked.append(("lean", 2, 3)), "nothing was bought twice"),
        (lambda led: led.renewed.clear(), "nothing was bought twice"),
        (lambda led: setattr(led.departed, "moved_at", 0.0), EVACUATED),
        (lambda led: setattr(led.departed, "moved_at", STRIKE + 301.0), EVACUATED),
        (lambda led: setattr(led.departed, "gone_at", STRIKE + 301.0), EVACUATED),
        (lambda led: led.departed.steps.append("asked stream"), EVACUATED),
        (lambda led: led.departed.steps.remove("drained stream-spot"), EVACUATED),
        (lambda led: led.departed.steps.append("drained search"), REPAIRED),
        (lambda led: led.departed.steps.remove("asked search"), REPAIRED),
        (lambda led: led.departed.steps.reverse(), REPAIRED),
        (lambda led: led.departed.steps.reverse(), RENEWED),
        (lambda led: setattr(led.departed, "held", ""), RENEWED),
        (lambda led: setattr(led.departed, "held", "InReplacement"), RENEWED),
        (lambda led: setattr(led.departed, "asked_at", STRIKE + 4999.0), RENEWED),
        (lambda led: setattr(led.departed, "asked_at", 0.0), RENEWED),
        (lambda led: led.opened.ran.pop(CELLAR), RAN),
        (lambda led: led.opened.ran.clear(), RAN),
        (lambda led: led.bought.update({NEXT_TYPE: 1}), SOLD_OUT),
        (lambda led: led.bought.update({RARE: 1}), SOLD_OUT),
        (lambda led: led.refused.pop(RARE), SOLD_OUT),
        (lambda led: led.second_choice.pop(RARE), SOLD_OUT),
        (lambda led: led.opened.made.update([LARGE]), MADE_ONCE),
        (lambda led: led.opened.existing.update([LARGE]), MADE_ONCE),
        (lambda led: led.opened.made.clear(), MADE_ONCE),
        (lambda led: led.opened.existing.pop(LARGE), MADE_ONCE),
        (lambda led: led.opened.interrupted.clear(), MADE_ONCE),
        (lambda led: led.opened.kept.clear(), PRUNED),
        (lambda led: led.opened.kept.update({LARGE: 1}), PRUNED),
        (lambda led: setattr(led.opened, "is_pruned", False), PRUNED),
        (lambda led: setattr(led.opened, "servers", 1), PRUNED),
        (lambda led: setattr(led.opened, "left", 1), PRUNED),
    ],
)
def test_demo_ledger_names_each_error(change: Callable[[Ledger], object], missing: str) -> None:
    ledger = _good()
    change(ledger)
    assert missing in _missing(ledger)


@pytest.mark.parametrize(
    ("message", "missing"),
    [
        ("node n1: pod default/web was bound to it after it was planned", []),
        ("node n1: the vendor refuses", ["every other operation ended well"]),
    ],
    ids=["in use again", "refused"],
)
def test_demo_removal_that_finds_its_node_in_use_again_is_no_failure(
    message: str, missing: list[str]
) -> None:
    store, ledger = MemoryAccount().store("demo", clock=lambda: STRIKE), _good()
    narrator = Narrator("shop", store, lambda: STRIKE, ledger, lambda *_: None, {})
    facts: dict[str, str | int | float | bool] = {
        "kind": "remove",
        "state": "failed",
        "targets": "n1",
        "message": message,
    }
    store.journal.append(
        "shop", JournalEntry(STRIKE, "operation", operation="remove-1", group="g", facts=facts)
    )
    narrator.look()
    assert _missing(ledger) == missing
    assert sum(ledger.ended.values()) == 7


def test_demo_ledger_that_is_empty_is_not_a_success() -> None:
    assert len(_missing(Ledger())) > 5
    assert Ledger().reaction is None


def test_demo_ledger_wording() -> None:
    assert (span(247.9), span(3599.0), span(21847.0)) == ("04:07", "59:59", "6:04:07")
    assert names(["c", "a", "b", "a", "d"], 2) == "a, b and 2 more"
