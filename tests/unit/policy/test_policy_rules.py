"""spec.rules: entries become Rule objects; invalid rules are refused at their position."""

from __future__ import annotations

from chalicelib.model.scaling_rules import Metric, Rule
from chalicelib.policy.load import load
from tests.cases import each_row
from tests.unit.policy.policy_documents import with_spec
from tests.unit.policy.refused_documents import Case
from tests.unit.policy.test_policy_refusals import refusals


def document(*rules: str, further: str = "") -> str:
    """A document with these rules; the first is in line 10."""
    return with_spec("rules:\n" + "\n".join(f"- {{{rule}}}" for rule in rules) + f"\n{further}")


def rules_of(text: str) -> tuple[Rule, ...]:
    policy, _ = load(text, place="p.yaml")
    return policy.rules


CRON = 'name: a, groups: [w], cron: "47 20 * * *", add: 3'
BUSY = "name: b, groups: [w], metric: cpu, above: 70"


@each_row(
    ("given", "rule"),
    [
        (CRON, Rule("a", ("w",), cron="47 20 * * *", add=3)),
        (
            CRON + ", timeZone: Europe/Zurich",
            Rule("a", ("w",), cron="47 20 * * *", time_zone="Europe/Zurich", add=3),
        ),
        (
            'name: a, groups: "w, v", cron: " 0  8 * * MON ", add: 100000',
            Rule("a", ("w", "v"), cron="0 8 * * MON", add=100000),
        ),
        (BUSY, Rule("b", ("w",), metric=Metric.CPU, above=70)),
        (BUSY + ", add: auto", Rule("b", ("w",), metric=Metric.CPU, above=70)),
        (
            "name: b, groups: [w], metric: memory, above: 100%, add: 2",
            Rule("b", ("w",), metric=Metric.MEMORY, above=100, add=2),
        ),
        ("name: b, groups: [w], metric: cpu, above: auto", Rule("b", ("w",), metric=Metric.CPU)),
    ],
)
def test_policy_rules_are_parsed(given: str, rule: Rule) -> None:
    assert rules_of(document(given)) == (rule,)


WRONG: list[Case] = [
    (with_spec("rules: soon"), "p.yaml:9: spec.rules", "is not a list", "{name: evening"),
    (with_spec("rules: [evening]"), "p.yaml:9: spec.rules[0]", "is 'evening'", "write a mapping"),
    (
        document('groups: [w], cron: "47 20 * * *", add: 1'),
        "p.yaml:10: spec.rules[0].name",
        "is missing",
        "NAME",
    ),
    (
        document("name: a/b, groups: [w], metric: cpu"),
        "p.yaml:10: spec.rules[0].name",
        "'a/b' is not",
        "evening",
    ),
    (
        document("name: b, metric: cpu"),
        "p.yaml:10: spec.rules[0].groups",
        "is missing",
        "groups: [ID]",
    ),
    (
        document("name: b, groups: [], metric: cpu"),
        "p.yaml:10: spec.rules[0].groups",
        "names no group",
        "groups: [ID]",
    ),
    (
        document("name: b, groups: , metric: cpu"),
        "p.yaml:10: spec.rules[0].groups",
        "names no group",
        "groups: [ID]",
    ),
    (
        document("name: b, groups: [w, w], metric: cpu"),
        "p.yaml:10: spec.rules[0].groups",
        "names w twice",
        "once",
    ),
    (
        document("name: b, groups: {w: 1}, metric: cpu"),
        "p.yaml:10: spec.rules[0].groups",
        "is a mapping",
        "a list",
    ),
    (
        document(BUSY + ", corn: x"),
        "p.yaml:10: spec.rules[0].corn",
        "is unknown",
        "did you mean cron?",
    ),
    (
        document("name: a, groups: [w], cron: daily, add: 1"),
        "p.yaml:10: spec.rules[0].cron",
        "'daily' is not five fields",
        "0 22 * * 1-5",
    ),
    (
        document('name: a, groups: [w], cron: "0 0 30 2 *", add: 1'),
        "p.yaml:10: spec.rules[0].cron",
        "30 2 *' is not",
        "day of the month",
    ),
    (
        document(CRON + ", timeZone: Mars"),
        "p.yaml:10: spec.rules[0].timeZone",
        "'Mars' is not a time zone",
        "Zurich",
    ),
    (
        document(CRON + ", metric: cpu"),
        "p.yaml:10: spec.rules[0].metric",
        "has a cron already",
        "keep one",
    ),
    (
        document("name: a, groups: [w], add: 1"),
        "p.yaml:10: spec.rules[0]",
        "does not say when",
        "or metric: cpu",
    ),
    (
        document(CRON + ", above: 70"),
        "p.yaml:10: spec.rules[0].above",
        "belongs to metric",
        "take above out",
    ),
    (
        document(BUSY + ", timeZone: UTC"),
        "p.yaml:10: spec.rules[0].timeZone",
        "belongs to cron",
        "take timeZone out",
    ),
    (
        document('name: a, groups: [w], cron: "47 20 * * *"'),
        "p.yaml:10: spec.rules[0].add",
        "is missing",
        "add: 3",
    ),
    (
        document('name: a, groups: [w], cron: "47 20 * * *", add: auto'),
        "p.yaml:10: spec.rules[0].add",
        "auto is for metric rules only",
        "add: 3",
    ),
    *(
        (
            document(BUSY + f", add: {bad}"),
            "p.yaml:10: spec.rules[0].add",
            said,
            "from 1 to 100000, or auto",
        )
        for bad, said in (
            ("0", "'0' is not"),
            ("-1", "'-1' is not"),
            ("some", "'some' is not"),
            ("1.5", "'1.5' is not"),
            ("100001", "100001 is out of range"),
            ("012", "'012' is not"),
        )
    ),
    *(
        (
            document(f"name: b, groups: [w], metric: cpu, above: {bad}"),
            "p.yaml:10: spec.rules[0].above",
            said,
            "from 1% to 100%",
        )
        for bad, said in (
            ("0", "out of range"),
            ("101", "out of range"),
            ("70.5", "not a whole"),
            ("-1", "not a whole"),
            ("'>70'", "not a whole"),
        )
    ),
    (
        document("name: b, groups: [w], metric: disk"),
        "p.yaml:10: spec.rules[0].metric",
        "'disk' is unknown",
        "cpu or memory",
    ),
    (
        document(CRON, CRON.replace("[w]", "[v]")),
        "p.yaml:11: spec.rules[1].name",
        "a is already rules[0]",
        "once",
    ),
    (document(*["x"] * 501), "p.yaml:9: spec.rules", "has 501 rules", "at most 500"),
]


@each_row(("text", "place", "problem", "remedy"), WRONG)
def test_policy_rules_errors_name_their_position(
    text: str, place: str, problem: str, remedy: str
) -> None:
    (reported,) = refusals(text)
    assert reported.startswith(f"{place}: ")
    assert problem in reported
    assert remedy in reported
    assert "\n" not in reported


def test_CCE_1_one_cpu_and_one_memory_rule_per_group() -> None:
    memory = BUSY.replace("name: b", "name: m").replace("cpu", "memory")
    assert len(rules_of(document(BUSY, memory))) == 2
    assert (
        len(rules_of(document(BUSY, BUSY.replace("name: b", "name: c").replace("[w]", "[v]")))) == 2
    )
    assert refusals(
        document(BUSY, memory, BUSY.replace("name: b", "name: c").replace("[w]", "[v, w]"))
    ) == [
        (
            "p.yaml:12: spec.rules[2].metric: w has a rule about cpu already: rules[0]; keep one "
            "rule about cpu per group"
        )
    ]


def test_CCE_1_ten_rules_per_group_counted_for_each_of_its_groups() -> None:
    ten = [CRON.replace("name: a", f"name: a{n}") for n in range(10)]
    assert len(rules_of(document(*ten, "name: other, groups: [v], metric: cpu"))) == 11
    reported = refusals(
        document(
            *ten, "name: b, groups: [v, w], metric: cpu", "name: c, groups: [w], metric: memory"
        )
    )
    assert reported == [
        (
            "p.yaml:20: spec.rules[10].groups: is the eleventh rule for w; keep at most 10 rules "
            "per group"
        )
    ]


@each_row(
    ("rule", "further", "says"),
    [
        (
            BUSY.replace("70", "50"),
            "",
            (
                "50% is not above options.scaleDownUtilizationThreshold, 50%: nodes would "
                "be added and removed in turns; write"
            ),
        ),
        (BUSY.replace("70", "50"), "", "in turns; write more than 50, or lower that option"),
        (BUSY.replace("70", "50"), "", "p.yaml:10: spec.rules[0].above: 50% is not above"),
        (
            BUSY.replace("70", "55"),
            "options: {scaleDownUtilizationThreshold: 0.6}",
            "rules[0].above: 55% is not above",
        ),
        (
            BUSY.replace("70", "60"),
            "options: {scaleDownUtilizationThreshold: 0.605}",
            "write more than 60.5, or lower",
        ),
        (
            BUSY.replace("70", "100"),
            "options: {scaleDownUtilizationThreshold: 1}",
            "removed in turns; lower that",
        ),
        (
            BUSY.replace("70", "auto"),
            "scaleUp: {cpuThreshold: 40}",
            "rules[0].above: scaleUp's threshold, 40%, is not",
        ),
        (
            "name: m, groups: [w], metric: memory",
            "scaleUp: {memoryThreshold: 50%, cpuThreshold: 99}",
            "spec.rules[0].metric: scaleUp's threshold, 50%, is not above",
        ),
    ],
)
def test_CCE_A3_2_threshold_not_above_the_removal_threshold_is_refused(
    rule: str, further: str, says: str
) -> None:
    (reported,) = refusals(document(rule, further=further))
    assert says in reported


@each_row(
    ("rule", "further"),
    [
        (BUSY.replace("70", "51"), ""),
        (BUSY.replace("70", "50"), "options: {scaleDownUtilizationThreshold: 0.499}"),
        (BUSY.replace("70", "40"), "options: {scaleDownEnabled: false}"),  # nothing is ever removed
        (BUSY.replace("70", "auto"), ""),
        (BUSY.replace("70", "29"), "options: {scaleDownUtilizationThreshold: 0.28}"),
    ],
)
def test_CCE_A3_2_threshold_above_the_removal_threshold_is_accepted(
    rule: str, further: str
) -> None:
    assert len(rules_of(document(rule, further=further))) == 1


@each_row(
    "rule, further, where",
    [
        (
            BUSY.replace(", above: 70", ""),
            "",
            "rules[0].metric: has no threshold of its own, and scaleUp.cpuThreshold",
        ),
        (
            BUSY.replace("70", "auto"),
            "",
            "rules[0].above: has no threshold of its own, and scaleUp.cpuThreshold is",
        ),
        (BUSY.replace("70", "100"), "", "rules[0].above: is 100%"),
        (BUSY.replace("70", "99"), "", ""),
        (BUSY.replace("70", "auto"), "scaleUp: {cpuThreshold: 80}", ""),
        (CRON, "", ""),
    ],
)
def test_CCE_A3_6_threshold_that_requests_do_not_exceed_is_warned_of(
    rule: str, further: str, where: str
) -> None:
    _, warnings = load(document(rule, further=further), place="p.yaml")
    assert len(warnings) == bool(where)
    assert where in "".join(warnings)


def test_policy_rules_errors_are_reported_at_once() -> None:
    reported = refusals(
        document(
            "name: a, groups: [w], metric: cpu, above: 300, add: no",
            "name: a, cron: x y",
            further="options: {scaleDownUtilizationThreshold: 2}",
        )
    )
    assert [line.partition(": ")[2].partition(":")[0] for line in reported] == [
        "spec.rules[0].above",
        "spec.rules[0].add",
        "spec.rules[1].cron",
        "spec.rules[1].groups",
        "spec.rules[1].name",
        "spec.options.scaleDownUtilizationThreshold",
    ]


def test_policy_rules_with_unknown_group_names_are_accepted_silently() -> None:
    text = document(CRON, further="nodeGroups: [{provider: clusterapi, id: MachineDeployment/a/b}]")
    assert load(text, place="p.yaml")[1] == ()
