"""spot, prices.spot and what scaleUp learns: what is read, refused and warned about."""

from __future__ import annotations

import msgspec

from chalicelib.model.policy_permissions import STRICT
from chalicelib.policy.compiled import compiled, decompiled
from chalicelib.policy.settings.node_prices import NodePrices
from chalicelib.policy.settings.scale_up import ScaleUp
from chalicelib.policy.settings.spot import InterruptionAction, RebalanceAction, Spot
from tests.cases import each_row
from tests.unit.policy.policy_documents import GOOD, with_spec
from tests.unit.policy.refused_documents import Case
from tests.unit.policy.test_policy_consolidation import (
    CHERRY,
    EXOSCALE,
    of_providers,
    read,
    warnings,
)
from tests.unit.policy.test_policy_refusals import refusals

GROUP = "asg-bp18p2yfxow2dloq0001"
ALIBABA = f"alicloud: {{region: cn-hangzhou, credentialsSecret: a/b, nodes: ['0:9:{GROUP}']}}"
HUAWEI = (
    "huaweicloud: {region: cn-north-4, credentialsSecret: a/b, clusterId: "
    "2292498e-1111-11ee-8b5e-0255ac1001ba, "
    "nodes: ['0:9:pool-spot']}"
)
NO_PRICE = "counts as dear as on demand, so nothing moves to it; add spec.prices.spot"
PRICES = "prices: {cpu: 0.03, memory: 0.004, spot: {m5.large: 0.035}}"


def spot(fields: str) -> str:
    """A document of Cluster API with this spec.spot, in line 9, and prices of spot nodes."""
    return with_spec(f"spot: {{{fields}}}\n{PRICES}")


# --- what is read


def test_policy_without_spot_only_reports_and_is_stored_as_before() -> None:
    policy = read(GOOD)
    assert policy.spot is None
    assert "spot" not in msgspec.json.decode(msgspec.json.encode(policy))


@each_row(
    ("fields", "expected"),
    [
        ("", Spot()),
        ("interruptions: act, maxShare: 100%, onDemandBase: 0", Spot()),
        (
            (
                "groups: [a], interruptions: report, avoidAfterInterruption: 0, returnAfter: 2h, "
                "maxShare: 1%, "
                "onDemandBase: 2, rebalance: prefer"
            ),
            Spot(
                groups=("a",),
                interruptions=InterruptionAction.REPORT,
                avoid_after_interruption=0.0,
                return_after=7200.0,
                max_share=0.01,
                on_demand_base=2,
                rebalance=RebalanceAction.PREFER,
            ),
        ),
    ],
)
def test_policy_spot_is_parsed(fields: str, expected: Spot) -> None:
    policy = read(spot(fields))
    assert policy.spot == expected
    form = compiled(policy, "text")
    assert form is not None
    assert decompiled(form, "text", policy.name, STRICT) == policy


def test_policy_prices_of_spot_nodes_alone_are_prices() -> None:
    assert read(with_spec("prices: {spot: {m5.large: 0.035}}")).prices == NodePrices(
        spot={"m5.large": 0.035}
    )


def test_policy_learning_of_scale_up_is_parsed() -> None:
    learning = "scaleUp: {expectedCost: true, learnedTimeouts: true}"
    policy = read(with_spec(f"{learning}\n{PRICES}\noptions: {{expander: price}}"))
    assert policy.scale_up == ScaleUp(expected_cost=True, learned_timeouts=True)


# --- what is refused


def key(name: str) -> str:
    return f"p.yaml:9: spec.spot.{name}: "


REFUSED: list[Case] = [
    (with_spec("spot: act"), "p.yaml:9: spec.spot: ", "is 'act'", "write a mapping"),
    (spot("groups: []"), key("groups"), "names no group", "take the line out"),
    (spot("interruptions: ignore"), key("interruptions"), "'ignore' is unknown", "act or report"),
    (
        spot("avoidAfterInterruption: 745h"),
        key("avoidAfterInterruption"),
        "out of range",
        "to 744h",
    ),
    (spot("returnAfter: never"), key("returnAfter"), "'never'", "10m"),
    (spot("maxShare: 0%"), key("maxShare"), "would forbid every spot node", "write at least 1%"),
    (spot("maxShare: 101%"), key("maxShare"), "'101%' is out of range", "from 1% to 100%"),
    (spot("maxShare: 0.5"), key("maxShare"), "'0.5' is not a whole percentage", "from 1% to 100%"),
    (spot("onDemandBase: -1"), key("onDemandBase"), "-1 is out of range", "0 to 100000"),
    (
        spot("onDemandBase: 10%"),
        key("onDemandBase"),
        "'10%' is not a whole number",
        "a whole number",
    ),
    (spot("rebalance: act"), key("rebalance"), "'act' is unknown", "ignore or prefer"),
    (spot("share: 50%"), key("share"), "is unknown", "did you mean maxShare?"),
    (
        with_spec("prices: {spot: {m5.large: cheap}}"),
        'p.yaml:9: spec.prices.spot["m5.large"]: '.replace('"', "'"),
        "'cheap' is not a number",
        "such as 0.096",
    ),
    (
        with_spec("prices: {spot: 0.3}"),
        "p.yaml:9: spec.prices.spot: ",
        "is '0.3'",
        "m5.large: 0.096",
    ),
    (
        of_providers(EXOSCALE, "spot: {groups: [workers]}"),
        "p.yaml:8: spec.spot.groups[0]: ",
        "exoscale has no spot machines",
        "take it out",
    ),
    (
        of_providers(
            f"{EXOSCALE}, {CHERRY.replace('workers', 'metal')}",
            PRICES,
            "spot: {groups: [metal, workers]}",
        ),
        "p.yaml:9: spec.spot.groups[1]: ",
        "exoscale has no spot machines",
        "take it out",
    ),
]


@each_row(("text", "place", "problem", "remedy"), REFUSED)
def test_policy_spot_errors_name_their_place(
    text: str, place: str, problem: str, remedy: str
) -> None:
    (reported,) = refusals(text)
    assert reported.startswith(place)
    assert problem in reported
    assert remedy in reported
    assert "\n" not in reported


# --- what is warned about


@each_row(
    ("text", "expected"),
    [
        (spot(""), []),
        (
            with_spec(f"spot:\n{PRICES}"),
            [
                (
                    "p.yaml:9: spec.spot: has no value and counts as {}: nodes that their vendor "
                    "takes back are "
                    "evacuated; take the line out, or write {}"
                )
            ],
        ),
        (
            with_spec(PRICES),
            [
                (
                    "p.yaml:9: spec.prices.spot: counts only for groups that their provider calls "
                    "spot; with "
                    "spec.spot, such as spot: {interruptions: report}, those that it or a label "
                    "names count, too"
                )
            ],
        ),
        (with_spec("spot: {}"), [f"p.yaml:9: spec.spot: a spot group of clusterapi {NO_PRICE}"]),
        (
            with_spec("spot: {groups: [a, b]}"),
            [f"p.yaml:9: spec.spot.groups[{index}]: {NO_PRICE}" for index in (0, 1)],
        ),
        (of_providers(ALIBABA, "spot: {}"), []),
        (
            of_providers(HUAWEI, "spot: {groups: [pool-spot]}"),
            [f"p.yaml:8: spec.spot.groups[0]: {NO_PRICE}"],
        ),
        (
            of_providers(f"{ALIBABA}, {HUAWEI}", "spot: {}"),
            [f"p.yaml:8: spec.spot: a spot group of huaweicloud {NO_PRICE}"],
        ),
        (of_providers(f"{ALIBABA}, {HUAWEI}", f"spot: {{groups: [{GROUP}]}}"), []),
        (
            of_providers(ALIBABA.replace("nodes", "readPrices: false, nodes"), "spot: {}"),
            [f"p.yaml:8: spec.spot: a spot group of alicloud {NO_PRICE}"],
        ),
        (
            of_providers(EXOSCALE, "spot: {}"),
            ["p.yaml:8: spec.spot: has no effect: exoscale has no spot machines"],
        ),
        (of_providers(f"{EXOSCALE}, {ALIBABA}", "spot: {}"), []),
    ],
)
def test_policy_spot_groups_without_a_price_are_warned_about(
    text: str, expected: list[str]
) -> None:
    assert list(warnings(text)) == expected


@each_row(
    ("providers", "lines", "expected"),
    [
        (
            CHERRY,
            ("spot: {}",),
            (
                "spec.spot: notice is two minutes; a scanInterval of 20s leaves 100s, one of 1m "
                "leaves 60s (cherryservers)"
            ),
        ),
        (
            CHERRY,
            ("scanInterval: 31s", "spot: {groups: [workers]}"),
            (
                "spec.scanInterval: notice is two minutes; a scanInterval of 20s leaves 100s, one "
                "of 31s leaves 89s "
                "(cherryservers)"
            ),
        ),
        (
            CHERRY,
            ("scanInterval: 1h", "spot: {}"),
            (
                "spec.scanInterval: notice is two minutes; a scanInterval of 20s leaves 100s, one "
                "of 1h leaves 0s "
                "(cherryservers)"
            ),
        ),
        (CHERRY, ("scanInterval: 30s", "spot: {}"), ""),
        (CHERRY, ("scanInterval: 1m",), ""),
        (ALIBABA, ("spot: {}",), ""),
        (
            ALIBABA,
            ("scanInterval: 2m", "spot: {}"),
            (
                "spec.scanInterval: notice is five minutes; a scanInterval of 50s leaves 250s, one "
                "of 2m leaves 180s "
                "(alicloud)"
            ),
        ),
        (f"{CHERRY}, {ALIBABA}", (f"spot: {{groups: [{GROUP}]}}",), ""),
    ],
)
def test_spot_6_policy_scan_interval_that_uses_up_the_notice_is_warned_about(
    providers: str, lines: tuple[str, ...], expected: str
) -> None:
    assert warnings(of_providers(providers, *lines)) == (
        (f"p.yaml:8: {expected}",) if expected else ()
    )


@each_row(
    ("lines", "expected"),
    [
        (
            ("spot: {returnAfter: 2h}",),
            "returnAfter: nothing returns to spot: consolidation is off",
        ),
        (
            ("spot: {returnAfter: 2h}", "consolidation: {mode: remove}"),
            "returnAfter: nothing returns to spot: consolidation buys nothing in mode remove",
        ),
        (("spot: {returnAfter: 2h}", "consolidation: {mode: full}"), ""),
        (("spot: {returnAfter: 2h}", "consolidation: {mode: shadow}"), ""),
        (("spot: {onDemandBase: 2}", "options: {maxNodesTotal: 3}"), ""),
        (
            ("spot: {onDemandBase: 3}", "options: {maxNodesTotal: 3}"),
            "onDemandBase: leaves no place for a spot node: options.maxNodesTotal is 3",
        ),
    ],
)
def test_policy_spot_settings_without_effect_are_warned_about(
    lines: tuple[str, ...], expected: str
) -> None:
    assert warnings(of_providers(ALIBABA, *lines)) == (
        (f"p.yaml:8: spec.spot.{expected}",) if expected else ()
    )


@each_row(
    ("name", "remedy"),
    [
        ("asg-bp18p2yfxow2dloq0002", f"did you mean {GROUP}?"),
        (GROUP, ""),
        ("spotty", "it counts only if a provider has such a group or pool"),
    ],
)
def test_policy_unknown_groups_of_spot_are_warned_about(name: str, remedy: str) -> None:
    expected = f"p.yaml:8: spec.spot.groups[0]: {name!r} is no group of this document; {remedy}"
    assert warnings(of_providers(ALIBABA, f"spot: {{groups: [{name}]}}")) == (
        (expected,) if remedy else ()
    )


def test_policy_similar_names_are_looked_for_fifty_times_only() -> None:
    names = ", ".join(f"{GROUP}{number}" for number in range(60))
    reported = warnings(of_providers(ALIBABA, f"spot: {{groups: [{names}]}}"))
    assert [text.endswith(f"did you mean {GROUP}?") for text in reported] == [True] * 50 + [
        False
    ] * 10


@each_row(
    ("expander", "expected"),
    [
        (
            "least-waste",
            (
                "p.yaml:9: spec.scaleUp.expectedCost: has no effect without the expander price or "
                "least-cost"
            ),
        ),
        ("price", ""),
        ("[least-cost, random]", ""),
    ],
)
def test_policy_expected_cost_without_prices_in_the_choice_is_warned_about(
    expander: str, expected: str
) -> None:
    text = with_spec(
        f"scaleUp: {{expectedCost: true}}\nspot: {{}}\n{PRICES}\noptions: {{expander: {expander}}}"
    )
    assert warnings(text) == ((expected,) if expected else ())
