"""The page docs/rules.md: the tests for each rule of Huawei Cloud CCE's scaling policies.

Without this page, a rule without a test would go unnoticed. The names are read from the sources, so
the page lists only existing tests: `test_CCE_A3_4_x` tests rule A3.4, `test_CCE_7_x` scenario 7,
and `test_CCE_DANGER_1_x` the first of the three calls that can empty a pool.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType

ROOT = Path(__file__).resolve().parents[2]

RULES: Mapping[str, str] = MappingProxyType(
    {
        "A1.1": (
            "Pods that cannot be scheduled and rules are two triggers, each with its own switch."
        ),
        "A1.2": (
            "A pod that is bound to one node, or that asks for a label no new node promises, buys "
            "nothing."
        ),
        "A1.3": "What the vendor's add-on offers only in later versions works everywhere.",
        "A1.4": (
            "Settings hold for every pool and take effect with the next pass; timers survive the "
            "change."
        ),
        "A1.5": "The default pool and prepaid pools are never changed.",
        "A1.6": (
            "Rates are measured once in a pass, whenever that is; one measurement is enough to act."
        ),
        "A2": (
            "HorizontalNodeAutoscaler objects are read unchanged; an invalid one is refused as a "
            "whole and reported."
        ),
        "A3.1": (
            "The rate is requests by allocatable of the pool's ready nodes, for cpu and for "
            "memory; not usage."
        ),
        "A3.2": "A threshold must be larger than the one below which nodes are removed.",
        "A3.3": "A pool without nodes has no rate, and no metric rule adds any.",
        "A3.4": "While a node lacks its accelerator, metric rules of its pool do not act.",
        "A3.5": (
            "A metric rule adds nothing to a pool that is scaling, backed off, or at one of its "
            "limits."
        ),
        "A3.6": "A rule adds the nodes it names, or as many as bring the rate below the threshold.",
        "A4": (
            "A cron rule adds its nodes once for each time that matches, in its time zone, "
            "whatever the rate is."
        ),
        "A5.1": (
            "Pending pods come first; where they got nodes, metric rules are skipped in this pass."
        ),
        "A5.2": (
            "Of several metric rules of a pool the one that adds most nodes acts; of equals, that "
            "for cpu."
        ),
        "A5.3": (
            "If a cron rule acts, metric rules of the pool do not, and their actions are not "
            "repeated later."
        ),
        "A5.4": (
            "A cron rule that falls due while its pool is scaling stays pending, and acts "
            "afterwards."
        ),
        "A5.5": (
            "Cron rules act in a pass that serves pods; several on one pool act one after the "
            "other."
        ),
        "A5.6": "No rule begins on a pool that is scaling; pending pods do not wait for that.",
        "A6.1": (
            "A pool stays within its bounds, and so do all its groups together, growing and "
            "shrinking."
        ),
        "A6.2": "A node stays for its pool's cooldown, counted from its own creation.",
        "A6.3": (
            "Each flavour of a pool has its own bounds and a rank within the pool, and may be "
            "disabled."
        ),
        "A6.4": "Pools have priorities, and the larger comes first.",
        "A6.5": "Groups that cannot host a pod or are in backoff are dropped; then "
        "priority, rank, waste and zones decide.",
        "A6.6": "Expanders form a chain; priority, least waste and random choice are among them.",
        "A6.7": "Flavours of a pool that differ only in their zone grow evenly, and "
        "a full one leaves the rest to them.",
        "A6.8": "A pool may have its own conditions for removals, which replace the cluster's.",
        "A7": (
            "Limits of the whole cluster and the settings of removals, imported from the add-on "
            "where asked for."
        ),
        "A8.1": (
            "A node is a candidate once cpu and memory were both requested below the threshold for "
            "long enough."
        ),
        "A8.2": "A node that was not ready for twenty minutes is removed.",
        "A8.3": "Nodes stay for pods without another place, for protection, for pods "
        "that may not move, and for minima.",
        "A8.4": "Idle nodes go together up to the limit; nodes with pods to move go one by one.",
        "A8.5": (
            "A node that cannot go is evaluated again after five minutes; candidates have a soft "
            "taint."
        ),
        "A8.6": (
            "Scale-ups, removals and failed removals start a cooldown in which nothing is removed."
        ),
        "A8.7": (
            "The cooldown after a scale-up may be 0, so that pools that grow constantly do not "
            "stop all removals."
        ),
        "A8.8": "A node goes when its pool's cooldown and the cluster's cooldowns are "
        "over; scale-up waits for neither.",
        "A8.9": "No rule removes anything.",
        "A9.1": (
            "Sold out or over quota: 5, 10, 20, then 30 minutes of backoff; others are tried in "
            "the same pass."
        ),
        "A9.2": (
            "A machine that cannot be installed: 5 minutes; its deletion requests another pass."
        ),
        "A9.3": (
            "A machine may take 15 minutes; then the pods are planned for again, elsewhere if "
            "necessary."
        ),
        "A9.4": "The sequence starts again after a success, or three hours without a "
        "failure; failures at once count once.",
        "A9.5": (
            "Backoff applies to one flavour in one zone; a pool is in backoff only when all of "
            "them are."
        ),
        "A10": (
            "An unhealthy cluster is neither grown nor shrunk; two habits that bring that about "
            "are warned of."
        ),
    }
)
"""Part A of the reference, a line each."""

SCENARIOS: Mapping[str, str] = MappingProxyType(
    {
        "1": (
            "Objects that are wrong in a field are refused; spellings of the vendor's documents "
            "are accepted."
        ),
        "2": "Of two objects that both have a cpu rule for a pool the later is refused.",
        "3": "A threshold that is not above the one for removals makes a rule invalid.",
        "4": (
            "The nodes that a rule calculates are the fewest that bring the rate below the "
            "threshold."
        ),
        "5": (
            "Without nodes, or without a node's accelerator, metric rules are silent and cron "
            "rules are not."
        ),
        "6": "A full pool, a full flavour and a limit of the cluster cut what a rule adds.",
        "7": (
            "Cron rules are due once, across a missed minute, a change of the clocks and an outage."
        ),
        "8": (
            "Pods that get nodes silence metric rules in the same pass; pods that get none do not."
        ),
        "9": "Of two metric rules of a pool the one that wants more nodes acts alone.",
        "10": "A cron rule and a metric rule at the same time, either way round.",
        "11": "A sold-out pool of the highest priority, then its next flavour, then the next pool.",
        "12": "One rate above the threshold, or a second too few, and the node stays.",
        "13": "Idle nodes first and together, busy ones one by one; what is protected stays.",
        "14": "A young node stays, and so does every node soon after a growth elsewhere.",
        "15": "The lengths of back-off, what resets them, and machines that do not come.",
        "16": "Half of ten nodes not ready stops everything, half of four does not.",
        "17": "Signatures are the vendor's, and temporary keys are renewed before they end.",
        "18": (
            "A growth sends the pool's new total once, for the right flavour, and never one below "
            "what was read."
        ),
        "19": (
            "A removal deletes machines by their ids and sends no total; nothing is sent for a "
            "foreign one."
        ),
        "20": (
            "Nodes are found by every name they have; pages, errors and states are read as the "
            "vendor means them."
        ),
        "DANGER_1": (
            "A total that is missing is 0 for the vendor, and empties the pool: it is never "
            "missing."
        ),
        "DANGER_2": (
            "An update without ignoreInitialNodeCount empties the pool: it is in every one."
        ),
        "DANGER_3": "A lower total removes machines that the vendor picks: machines are "
        "removed by id, and no other way.",
    }
)
"""Its scenarios, and the calls that lose machines."""

_DEFINED = re.compile(r"^\s*(?:async )?def (test_\w+)\(", re.MULTILINE)
_NAMED = re.compile(r"CCE_(DANGER_\d|A\d+_\d+|A\d+|\d+)(?=_|$)")


def held_by(root: Path = ROOT / "tests") -> dict[str, list[tuple[str, str]]]:
    """Maps an id of RULES or SCENARIOS to the sorted (file below the project's root, test)
    pairs of tests that name it.

    An id in neither of them is listed as it is written in the test's name.
    """
    found: dict[str, list[tuple[str, str]]] = {}
    for path in sorted(root.rglob("*.py")):
        file = path.relative_to(root.parent).as_posix()
        for test in _DEFINED.findall(path.read_text("utf-8")):
            for name in dict.fromkeys(_ids(test)):
                found.setdefault(name, []).append((file, test))
    return {name: sorted(tests) for name, tests in found.items()}


def _ids(test: str) -> Iterator[str]:
    for written in _NAMED.findall(test):
        rule = written.replace("_", ".")
        if not written.startswith("A"):
            yield written
        elif rule in RULES or rule.partition(".")[0] not in RULES:
            yield rule
        else:
            # a rule without parts; the following number belongs to the test's sentence
            yield rule.partition(".")[0]


def page(held: Mapping[str, list[tuple[str, str]]]) -> str:
    """The page's text. held: a result of `held_by`."""
    return f"""# Rules of Huawei Cloud CCE and their tests

Made by `make docs`. Outscaler applies the scaling rules of Huawei Cloud CCE to the node groups of every provider. The names of
a rule's tests contain its id: `grep -rn CCE_A3_4 tests`.

## Rules

{_table(RULES, held)}
## Scenarios and dangerous calls

{_table(SCENARIOS, held)}"""


def _table(says: Mapping[str, str], held: Mapping[str, list[tuple[str, str]]]) -> str:
    rows = [
        f"| {name} | {sentence} | {len(held.get(name, []))} |" for name, sentence in says.items()
    ]
    return "\n".join(["| Id | Rule | Tests |", "|---|---|---|", *rows, ""])
