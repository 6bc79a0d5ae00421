"""consolidation, disruptionBudgets, and the currency and date of prices: what is read,
refused and warned about.
"""

from __future__ import annotations

import msgspec

from chalicelib.model.disruption_reason import DisruptionReason
from chalicelib.policy.load import load
from chalicelib.policy.settings.cluster_policy import Policy
from chalicelib.policy.settings.consolidation import Consolidation, ConsolidationMode, Steering
from chalicelib.policy.settings.disruption_budgets import DisruptionBudget
from chalicelib.policy.settings.node_limit import NodeLimit
from chalicelib.policy.settings.node_prices import NodePrices
from tests.cases import each_row
from tests.unit.policy.policy_documents import GOOD, HEAD, with_spec
from tests.unit.policy.refused_documents import Case
from tests.unit.policy.test_policy_refusals import refusals

PRICES = "\nprices: {cpu: 0.03, memory: 0.004}"
CHERRY = (
    "cherryservers: {credentialsSecret: a/b, cloudConfigSecret: c/d, clusterName: a, nodes: "
    "['0:1:workers']}"
)
EXOSCALE = "exoscale: {zone: ch-gva-2, credentialsSecret: a/b, nodes: ['1:9:workers']}"


def consolidation(fields: str) -> str:
    """A document with prices and this spec.consolidation, in line 9."""
    return with_spec(f"consolidation: {{{fields}}}{PRICES}")


def budget(fields: str) -> str:
    """A document with one disruption budget, in line 9."""
    return with_spec(f"disruptionBudgets: [{{{fields}}}]")


def of_providers(providers: str, *lines: str) -> str:
    """A document with these providers and further lines of spec, which begin in line 8."""
    return (
        f"{HEAD}spec:\n  mode: active\n  kubernetes: {{eksCluster: a}}\n  providers: "
        f"{{{providers}}}\n"
    ) + "".join(f"  {line}\n" for line in lines)


def read(text: str) -> Policy:
    return load(text, place="p.yaml")[0]


def warnings(text: str) -> tuple[str, ...]:
    return load(text, place="p.yaml")[1]


# --- what is read


def test_policy_without_the_sections_consolidates_nothing_and_is_stored_as_before() -> None:
    policy = read(GOOD)
    assert (policy.consolidation, policy.disruption_budgets) == (Consolidation(), ())
    assert policy.consolidation.mode is ConsolidationMode.OFF
    stored = msgspec.json.decode(msgspec.json.encode(policy))
    assert not stored.keys() & {"consolidation", "disruptionBudgets", "prices"}


@each_row(
    ("fields", "expected"),
    [
        ("", Consolidation()),
        ("mode: off", Consolidation()),
        ("mode: shadow", Consolidation(mode=ConsolidationMode.SHADOW)),
        (
            (
                "mode: full, groups: [workers, pool-2], aggressiveness: 2.5, minSavings: 15%, "
                "quietTime: 5m, "
                "minNodeAge: 1h, confirmAfter: 0, maxSurge: 3, "
                "maxReplacements: 7, "
                "movesPerPodPerDay: 0, splitNodes: false, spotToSpot: true, minCheaperGroups: 2, "
                "replaceTimeout: 75m"
            ),
            Consolidation(
                mode=ConsolidationMode.FULL,
                groups=("workers", "pool-2"),
                aggressiveness=2.5,
                min_savings=0.15,
                quiet_time=300.0,
                min_node_age=3600.0,
                confirm_after=0.0,
                max_surge=NodeLimit(nodes=3),
                max_replacements=7,
                moves_per_pod_per_day=0,
                split_nodes=False,
                spot_to_spot=True,
                min_cheaper_groups=2,
                replace_timeout=4500.0,
            ),
        ),
        (
            "mode: remove, maxSurge: 0",
            Consolidation(mode=ConsolidationMode.REMOVE, max_surge=NodeLimit(nodes=0)),
        ),
        (
            "maxSurge: 25 %, minSavings: 0",
            Consolidation(max_surge=NodeLimit(share=0.25), min_savings=0.0),
        ),
        ("steering: true, patience: true", Consolidation()),
        (
            "steering: false, patience: false",
            Consolidation(steering=Steering.OFF, patience=False),
        ),
        (
            "steering: always, patience: off",
            Consolidation(steering=Steering.ALWAYS, patience=False),
        ),
    ],
)
def test_policy_consolidation_is_parsed(fields: str, expected: Consolidation) -> None:
    assert read(consolidation(fields)).consolidation == expected


def test_policy_keys_without_effect_are_accepted_checked_and_warned_about() -> None:
    text = consolidation("mode: full, effort: high, priceSettleTime: 0s")
    assert read(text).consolidation == Consolidation(mode=ConsolidationMode.FULL)
    effort, settle_time = warnings(text)
    assert "consolidation.effort: has no effect any more: every search has" in effort
    assert "consolidation.priceSettleTime: has no effect any more: a price is" in settle_time


@each_row(
    ("fields", "expected"),
    [
        ("name: always, nodes: 10%", DisruptionBudget("always", NodeLimit(share=0.1))),
        ("name: none, nodes: 0", DisruptionBudget("none", NodeLimit(nodes=0))),
        (
            (
                "name: office, nodes: 2, groups: [workers], reasons: [consolidation, unneeded], "
                "cron: 0  8 * * 1-5, "
                "timeZone: Europe/Zurich, duration: 10h"
            ),
            DisruptionBudget(
                "office",
                NodeLimit(nodes=2),
                groups=("workers",),
                reasons=(DisruptionReason.CONSOLIDATION, DisruptionReason.UNNEEDED),
                cron="0 8 * * 1-5",
                duration=36000.0,
                time_zone="Europe/Zurich",
            ),
        ),
        (
            "name: one-word, nodes: 1, reasons: drifted",
            DisruptionBudget("one-word", NodeLimit(nodes=1), reasons=(DisruptionReason.DRIFTED,)),
        ),
    ],
)
def test_policy_disruption_budgets_are_parsed(fields: str, expected: DisruptionBudget) -> None:
    assert read(budget(fields)).disruption_budgets == (expected,)


def test_policy_currency_and_date_of_prices_are_parsed() -> None:
    policy, reported = load(
        with_spec("prices: {cpu: 0.03, currency: CHF, asOf: 2026-07-01}"), place="p.yaml"
    )
    assert policy.prices == NodePrices(cpu=0.03, currency="CHF", as_of="2026-07-01")
    assert reported == ()


# --- what is refused


def key(name: str) -> str:
    return f"p.yaml:9: spec.consolidation.{name}"


def of_budget(name: str = "") -> str:
    return f"p.yaml:9: spec.disruptionBudgets[0]{name}"


CONSOLIDATION: list[Case] = [
    (
        with_spec("consolidation: full"),
        "p.yaml:9: spec.consolidation",
        "is 'full'",
        "write a mapping",
    ),
    (
        with_spec("consolidation: {mode: full}"),
        key("mode"),
        "does not know what any group costs",
        "add spec.prices, such as prices: {cpu: 0.03, memory: 0.004}, or write mode: off",
    ),
    (
        consolidation("mode: all"),
        key("mode"),
        "'all' is unknown",
        "write off, shadow, remove or full",
    ),
    (consolidation("mode: removal"), key("mode"), "'removal' is unknown", "did you mean remove?"),
    (consolidation("groups: []"), key("groups"), "names no group", "take the line out"),
    (consolidation("groups: [a, a]"), key("groups"), "names a twice", "once"),
    (
        consolidation("aggressiveness: 0"),
        key("aggressiveness"),
        "0 is out of range",
        "a number from 1 to 10",
    ),
    (consolidation("aggressiveness: 10.1"), key("aggressiveness"), "out of range", "such as 2"),
    (
        consolidation("minSavings: 100%"),
        key("minSavings"),
        "would forbid every replacement",
        "write less than 100%, or mode: remove",
    ),
    (
        consolidation("minSavings: 0.1"),
        key("minSavings"),
        "'0.1' is not a whole percentage",
        "from 0% to 100%",
    ),
    (
        consolidation("minSavings: 101%"),
        key("minSavings"),
        "'101%' is out of range",
        "from 0% to 100%",
    ),
    (consolidation("quietTime: 25h"), key("quietTime"), "'25h' is out of range", "from 0s to 24h"),
    (
        consolidation("replaceTimeout: 10s"),
        key("replaceTimeout"),
        "'10s' is out of range",
        "from 1m to 24h",
    ),
    (consolidation("priceSettleTime: 30"), key("priceSettleTime"), "'30'", "10m"),
    *(
        (
            consolidation(f"maxSurge: {limit}"),
            key("maxSurge"),
            f"'{limit}' is not a number of nodes or a percentage",
            "such as 3 or 10%",
        )
        for limit in ("-1", "0.5", "101%", "half", "1e3", "9999999999", "10%%")
    ),
    *(
        (
            consolidation(f"mode: full, maxSurge: {none}"),
            key("maxSurge"),
            "leaves no room for a new node",
            "write at least 1, or mode: remove",
        )
        for none in ("0", "0%")
    ),
    (
        consolidation("maxReplacements: 0"),
        key("maxReplacements"),
        "0 is out of range",
        "from 1 to 1000",
    ),
    (
        consolidation("movesPerPodPerDay: -1"),
        key("movesPerPodPerDay"),
        "-1 is out of range",
        "from 0 to 10000",
    ),
    (
        consolidation("minCheaperGroups: 2"),
        key("minCheaperGroups"),
        "belongs to spotToSpot: true",
        "take minCheaperGroups out, or add that",
    ),
    (
        consolidation("minCheaperGroups: 2, spotToSpot: false"),
        key("minCheaperGroups"),
        "belongs to",
        "add that",
    ),
    (
        consolidation("minCheaperGroups: 2, spotToSpot: 1"),
        key("spotToSpot"),
        "is not true or false",
        "true or false",
    ),
    (consolidation("steering: off"), key("steering"), "'off' is unknown", "false, true or always"),
    (consolidation("patience: 6h"), key("patience"), "'6h' is not true or false", "true or false"),
    (consolidation("effort: max"), key("effort"), "'max' is unknown", "low, normal or high"),
    (
        consolidation("minNodeAges: 5m"),
        key("minNodeAges"),
        "is unknown",
        "did you mean minNodeAge?",
    ),
]
BUDGETS: list[Case] = [
    (
        with_spec("disruptionBudgets: 10%"),
        "p.yaml:9: spec.disruptionBudgets",
        "is not a list",
        "- {name: always",
    ),
    (budget("nodes: 1"), of_budget(".name"), "is missing", "add name: NAME"),
    (budget("name: a"), of_budget(".nodes"), "is missing", "add nodes: 10%"),
    (
        budget("name: a, nodes: all"),
        of_budget(".nodes"),
        "'all' is not a number of nodes",
        "such as 3 or 10%",
    ),
    (
        budget("name: a, nodes: 1, cron: 0 8 * * 1-5"),
        of_budget(".cron"),
        "needs both cron and duration",
        "add duration: 8h",
    ),
    (
        budget("name: a, nodes: 1, duration: 8h"),
        of_budget(".duration"),
        "needs both cron and duration",
        'add cron: "0 8 * * 1-5"',
    ),
    (
        budget("name: a, nodes: 1, timeZone: UTC"),
        of_budget(".timeZone"),
        "belongs to cron",
        "take timeZone out",
    ),
    (
        budget("name: a, nodes: 1, cron: 0 8 * * *, duration: 25h"),
        of_budget(".duration"),
        "25h is longer than the 24h until it opens again",
        "at most 24h",
    ),
    (
        budget("name: a, nodes: 1, cron: often, duration: 1h"),
        of_budget(".cron"),
        "is not five fields",
        "0 22",
    ),
    (
        budget("name: a, nodes: 1, reasons: []"),
        of_budget(".reasons"),
        "is an empty list",
        "take reasons out to mean all but unneeded",
    ),
    (
        budget("name: a, nodes: 1, reasons: [consolidation, interruption]"),
        of_budget(".reasons[1]"),
        "'interruption' cannot be limited: those nodes go anyway",
        "take it out",
    ),
    (
        budget("name: a, nodes: 1, reasons: [Underutilized]"),
        of_budget(".reasons[0]"),
        "'Underutilized' is Karpenter's word",
        "write consolidation",
    ),
    (
        budget("name: a, nodes: 1, reasons: Empty"),
        of_budget(".reasons"),
        "Karpenter's word",
        "write unneeded",
    ),
    (
        budget("name: a, nodes: 1, reasons: [age]"),
        of_budget(".reasons[0]"),
        "'age' is unknown",
        "write unneeded, consolidation, expired, drifted or repair",
    ),
    (
        budget("name: a, nodes: 1, reasons: [drift]"),
        of_budget(".reasons[0]"),
        "is unknown",
        "did you mean drifted?",
    ),
    (
        budget("name: a, nodes: 1, reasons: [repair, repair]"),
        of_budget(".reasons"),
        "names repair twice",
        "name each reason once",
    ),
    (
        budget("name: a, nodes: 1}, {name: a, nodes: 2"),
        "p.yaml:9: spec.disruptionBudgets[1].name",
        "a is already disruptionBudgets[0]",
        "give it another name",
    ),
    (
        budget("}, {".join(f"name: b{number}, nodes: 1" for number in range(51))),
        "p.yaml:9: spec.disruptionBudgets",
        "has 51 budgets",
        "at most 50",
    ),
]
PRICE_LIST: list[Case] = [
    *(
        (
            with_spec(f"prices: {{cpu: 1, currency: {currency}}}"),
            "p.yaml:9: spec.prices.currency",
            f"'{currency}' is not a currency's code",
            "write it like EUR",
        )
        for currency in ("eur", "EURO", "€", "12A")
    ),
    *(
        (
            with_spec(f"prices: {{cpu: 1, asOf: {date}}}"),
            "p.yaml:9: spec.prices.asOf",
            f"'{date}' is not a date",
            "write it like 2026-07-01",
        )
        for date in (
            "2026-02-30",
            "20260701",
            "1.7.2026",
            "2026-7-1",
            "2026-07-01T00:00:00Z",
            "yesterday",
        )
    ),
]


@each_row(("text", "place", "problem", "remedy"), [*CONSOLIDATION, *BUDGETS, *PRICE_LIST])
def test_policy_consolidation_errors_name_their_place(
    text: str, place: str, problem: str, remedy: str
) -> None:
    (reported,) = refusals(text)
    assert reported.startswith(f"{place}: ")
    assert problem in reported
    assert remedy in reported
    assert "\n" not in reported


# --- what is warned about


@each_row(
    ("text", "expected"),
    [
        (consolidation("mode: full"), ""),
        (
            consolidation("mode: full, minNodeAge: 5m"),
            (
                "p.yaml:9: spec.consolidation.minNodeAge: quietTime is longer, so minNodeAge has "
                "no effect"
            ),
        ),
        (
            consolidation("mode: full, quietTime: 1h"),
            "p.yaml:9: spec.consolidation.quietTime: minNodeAge is shorter, so it has no effect",
        ),
        (consolidation("minNodeAge: 5m, quietTime: 5m"), ""),
        (
            with_spec("consolidation: {mode: shadow}"),
            (
                "p.yaml:9: spec.consolidation.mode: does not know what any group costs, so nothing "
                "is consolidated; "
                "add spec.prices, such as prices: {cpu: 0.03, memory: 0.004}"
            ),
        ),
        (
            of_providers(EXOSCALE, "consolidation: {mode: full}"),
            (
                "p.yaml:8: spec.consolidation.mode: without spec.prices, groups of exoscale are "
                "consolidated only "
                "where their provider says what they cost"
            ),
        ),
        (
            of_providers(
                f"{CHERRY}, clusterapi: {{}}", "consolidation: {mode: full, replaceTimeout: 75m}"
            ),
            (
                "p.yaml:8: spec.consolidation.mode: the groups of clusterapi have no price and are "
                "not "
                "consolidated; add spec.prices for them"
            ),
        ),
        (
            of_providers(CHERRY, "consolidation: {mode: full}"),
            (
                "p.yaml:8: spec.consolidation.mode: machines of cherryservers take 30 to 60 "
                "minutes; write "
                "replaceTimeout: 75m"
            ),
        ),
        (
            of_providers(
                CHERRY, "consolidation: {mode: full}", "options: {maxNodeProvisionTime: 1h}"
            ),
            "",
        ),
        (of_providers(CHERRY, "consolidation: {mode: full, replaceTimeout: 75m}"), ""),
        (of_providers(CHERRY, "consolidation: {mode: remove}"), ""),
        (
            consolidation("mode: full") + "  options: {scaleDownEnabled: false}\n",
            "p.yaml:9: spec.consolidation.mode: removes nothing: options.scaleDownEnabled is false",
        ),
    ],
)
def test_policy_consolidation_without_effect_is_warned_about(text: str, expected: str) -> None:
    assert warnings(text) == ((expected,) if expected else ())


@each_row(
    ("mode", "more", "window", "needs"),
    [
        ("full", "", "name: nights, cron: 0 22 * * *, duration: 37m", "37m35s"),
        ("full", "", "name: nights, cron: 0 22 * * *, duration: 38m", ""),
        (
            "full",
            ", replaceTimeout: 75m",
            "name: nights, cron: 0 22 * * *, duration: 90m",
            "1h37m35s",
        ),
        ("full", "", "name: nights, cron: 0 22 * * *, duration: 30m, removals: forbidden", ""),
        ("remove", "", "name: nights, cron: 0 22 * * *, duration: 30m", ""),
    ],
)
def test_policy_windows_too_short_for_a_replacement_are_warned_about(
    mode: str, more: str, window: str, needs: str
) -> None:
    text = consolidation(f"mode: {mode}{more}") + f"  maintenanceWindows: [{{{window}}}]\n"
    expected = (
        "p.yaml:11: spec.maintenanceWindows[0].duration: no replacement fits into window "
        "'nights': it may take "
        f"{needs} to buy nodes and to drain the old ones"
    )
    assert warnings(text) == ((expected,) if needs else ())


BUDGET_OF_A_GROUP = "disruptionBudgets: [{name: a, nodes: 1, reasons: [unneeded], groups: [NAME]}]"
REPAIR_OF_A_GROUP = (
    "nodeLifecycle: {repair: [{condition: KernelDeadlock, after: 10m, groups: [NAME]}]}"
)
GROUPS = "nodeGroups: [{provider: exoscale, id: batch, min: 0, max: 3}]"


@each_row(
    ("section", "name", "remedy"),
    [
        ("consolidation: {groups: [NAME]}", "wokers", "did you mean workers?"),
        (
            "consolidation: {groups: [NAME]}",
            "other",
            "it counts only if a provider has such a group or pool",
        ),
        ("consolidation: {groups: [NAME]}", "workers", ""),
        ("consolidation: {groups: [NAME]}", "batch", ""),
        ("nodeLifecycle: {maxNodeAge: 720h, groups: [NAME]}", "wokers", "did you mean workers?"),
        ("nodeLifecycle: {maxNodeAge: 720h, groups: [NAME]}", "workers", ""),
        (REPAIR_OF_A_GROUP, "bacth", "did you mean batch?"),
        (REPAIR_OF_A_GROUP, "workers", ""),
        (
            BUDGET_OF_A_GROUP,
            "bacth",
            "did you mean batch?",
        ),
        (BUDGET_OF_A_GROUP, "batch", ""),
    ],
)
def test_policy_unknown_groups_of_disruption_are_warned_about(
    section: str, name: str, remedy: str
) -> None:
    reported = warnings(of_providers(EXOSCALE, GROUPS, section.replace("NAME", name)))
    assert [text.partition(".groups[0]: ")[2] for text in reported] == (
        [f"{name!r} is no group of this document; {remedy}"] if remedy else []
    )


def test_policy_group_names_are_not_judged_where_all_groups_are_discovered() -> None:
    assert warnings(consolidation("groups: [anything]")) == ()


def test_policy_group_may_be_named_by_the_end_of_its_id() -> None:
    group = "nodeGroups: [{provider: clusterapi, id: MachineDeployment/default/workers}]"
    assert warnings(with_spec(f"{group}\nconsolidation: {{groups: [workers]}}")) == ()


@each_row(
    ("fields", "mode", "expected"),
    [
        ("reasons: [unneeded]", "off", ""),
        ("", "shadow", ""),
        (
            "",
            "off",
            (
                ": limits nothing: consolidation is off, nodeLifecycle replaces nothing, and the "
                "removal of unneeded "
                "nodes is limited only where reasons names unneeded"
            ),
        ),
        (
            "reasons: [consolidation, expired, repair]",
            "shadow",
            (
                ".reasons: nothing is removed for this reason: expired, repair; it needs "
                "nodeLifecycle with "
                "maxNodeAge, repair"
            ),
        ),
    ],
)
def test_policy_budgets_that_limit_nothing_are_warned_about(
    fields: str, mode: str, expected: str
) -> None:
    text = (
        consolidation(f"mode: {mode}") + f"  disruptionBudgets: [{{name: a, nodes: 1, {fields}}}]\n"
    )
    assert warnings(text) == (
        (f"p.yaml:11: spec.disruptionBudgets[0]{expected}",) if expected else ()
    )
