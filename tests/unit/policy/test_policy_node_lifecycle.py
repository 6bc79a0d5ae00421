"""nodeLifecycle: what is read, refused and warned about, alone and with the sections beside it."""

from __future__ import annotations

import msgspec

from chalicelib.cli.serialize_policy import dump
from chalicelib.model.policy_permissions import STRICT
from chalicelib.policy.compiled import compiled, decompiled
from chalicelib.policy.settings.node_lifecycle import (
    DriftAction,
    NodeLifecycle,
    RepairAction,
    RepairRule,
)
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

READY = "condition: Ready, status: [False, Unknown], after: 30m"
NODES = (
    "nodeGroups: [{provider: exoscale, id: web, max: 3}, {provider: clusterapi, id: "
    "MachineSet/default/db}]"
)


def lifecycle(fields: str) -> str:
    """A document of Cluster API with this spec.nodeLifecycle, in line 9."""
    return with_spec(f"nodeLifecycle: {{{fields}}}")


def repair(fields: str, *providers: str) -> str:
    """A document of these providers, exoscale by default, with one repair rule, in line 8."""
    return of_providers(
        ", ".join(providers or (EXOSCALE,)), f"nodeLifecycle: {{repair: [{{{fields}}}]}}"
    )


# --- what is read


def test_policy_without_node_lifecycle_asks_for_nothing_and_is_stored_as_before() -> None:
    policy = read(GOOD)
    assert policy.node_lifecycle is None
    assert "nodeLifecycle" not in msgspec.json.decode(msgspec.json.encode(policy))


@each_row(
    ("fields", "expected"),
    [
        ("", NodeLifecycle()),
        ("drift: report", NodeLifecycle()),
        ("drift: off", NodeLifecycle(drift=DriftAction.OFF)),
        ("maxNodeAge: 1h", NodeLifecycle(max_node_age=3600.0)),
        (
            (
                "maxNodeAge: 720h, groups: [workers], jitter: 50%, expiryGrace: 0, drift: replace, "
                "maxUnhealthy: 0%, annotations: false, repair: [{condition: example.com/GpuLost, "
                "after: 1m, flapTime: 30s, groups: [gpu]}]"
            ),
            NodeLifecycle(
                max_node_age=720 * 3600.0,
                groups=("workers",),
                jitter=0.5,
                expiry_grace=0.0,
                drift=DriftAction.REPLACE,
                repair=(RepairRule("example.com/GpuLost", 60.0, flap_time=30.0, groups=("gpu",)),),
                max_unhealthy=0.0,
                annotations=False,
            ),
        ),
    ],
)
def test_policy_node_lifecycle_is_parsed(fields: str, expected: NodeLifecycle) -> None:
    policy = read(lifecycle(fields))
    assert policy.node_lifecycle == expected
    form = compiled(policy, "text")
    assert form is not None
    assert decompiled(form, "text", policy.name, STRICT) == policy


@each_row(
    ("status", "expected"),
    [
        ("True", ("True",)),
        ("[False, Unknown]", ("False", "Unknown")),
        ("'False, Unknown'", ("False", "Unknown")),
        ('["false", Unknown, true]', ("False", "Unknown", "True")),
    ],
)
def test_policy_statuses_are_words_and_not_booleans(status: str, expected: tuple[str, ...]) -> None:
    policy = read(repair(f"condition: A, after: 1h, status: {status}, action: restart"))
    assert policy.node_lifecycle is not None
    assert policy.node_lifecycle.repair == (
        RepairRule("A", 3600.0, expected, action=RepairAction.RESTART),
    )


# --- what is refused


def key(name: str) -> str:
    return f"p.yaml:9: spec.nodeLifecycle.{name}"


def of_rule(name: str, index: int = 0) -> str:
    return f"p.yaml:8: spec.nodeLifecycle.repair[{index}].{name}"


LIFE: list[Case] = [
    (
        with_spec("nodeLifecycle: 720h"),
        "p.yaml:9: spec.nodeLifecycle",
        "is '720h'",
        "write a mapping",
    ),
    (lifecycle("maxNodeAge: 30m"), key("maxNodeAge"), "is shorter than 1h", "write at least 1h"),
    (lifecycle("maxNodeAge: 59m59s"), key("maxNodeAge"), "is shorter than 1h", "write at least 1h"),
    (
        lifecycle("maxNodeAge: 30d"),
        key("maxNodeAge"),
        "'30d' is not a duration",
        "days are written in hours: 720h",
    ),
    (
        lifecycle("maxNodeAge: "),
        key("maxNodeAge"),
        "has no value",
        "write a duration, such as 720h, or take",
    ),
    *(
        (
            with_spec(f"nodeLifecycle: {{{asked}}}\nconsolidation: {{maxSurge: {surge}}}"),
            "p.yaml:10: spec.consolidation.maxSurge",
            "leaves no room for a new node beside the old one",
            "write at least 1",
        )
        for asked, surge in (
            ("maxNodeAge: 720h", "0"),
            ("drift: replace", "0%"),
            ("repair: [{condition: Lost, after: 10m}]", "0"),
        )
    ),
    (lifecycle("expireAfter: 720h"), key("expireAfter"), "is unknown", "known here: maxNodeAge"),
    (lifecycle("groups: []"), key("groups"), "names no group", "take the line out"),
    (lifecycle("jitter: 51%"), key("jitter"), "'51%' is out of range", "from 0% to 50%"),
    (lifecycle("expiryGrace: -1h"), key("expiryGrace"), "is negative", "0 or more"),
    (lifecycle("drift: replaced"), key("drift"), "'replaced' is unknown", "did you mean replace?"),
    (
        lifecycle("maxUnhealthy: 0.2"),
        key("maxUnhealthy"),
        "'0.2' is not a whole percentage",
        "from 0% to 100%",
    ),
    (lifecycle("annotations: never"), key("annotations"), "is not true or false", "true or false"),
    (
        with_spec(
            "nodeLifecycle: {maxNodeAge: 2h}\nconsolidation: {minNodeAge: 1h30m, replaceTimeout: "
            "31m}"
        ),
        key("maxNodeAge"),
        (
            "nodes would expire while they are replaced: consolidation.minNodeAge and the time of "
            "a replacement are 2h1m"
        ),
        "make it longer",
    ),
    (
        with_spec("nodeLifecycle: {maxNodeAge: 1h}\noptions: {maxNodeProvisionTime: 31m}"),
        key("maxNodeAge"),
        "nodes would expire while they are replaced",
        "make it longer",
    ),
]
RULES: list[Case] = [
    (repair("after: 1h"), of_rule("condition"), "is missing", "add condition: KernelDeadlock"),
    (repair("condition: A"), of_rule("after"), "is missing", "add after: 10m"),
    (
        repair("condition: A, after: 59s"),
        of_rule("after"),
        "'59s' is out of range",
        "from 1m to 744h",
    ),
    (
        repair("condition: A, after: 1h, flapTime: 25h"),
        of_rule("flapTime"),
        "out of range",
        "from 0s to 24h",
    ),
    (
        repair("condition: A, after: 1h, action: reboot"),
        of_rule("action"),
        "'reboot' is unknown",
        "restart or replace",
    ),
    (
        repair("condition: A, after: 1h, status: []"),
        of_rule("status"),
        "is an empty list",
        "take status out",
    ),
    (
        repair("condition: A, after: 1h, status: [no]"),
        of_rule("status[0]"),
        "'no' is unknown",
        "True, False or",
    ),
    (
        repair("condition: A, after: 1h, status: [True, true]"),
        of_rule("status"),
        "names True twice",
        "once",
    ),
    *(
        (
            repair(f"condition: '{name}', after: 1h"),
            of_rule("condition"),
            "is not the type of a node's",
            "Ready or",
        )
        for name in ("a b", "-A", "x/y/z", "", "Bäd", "A" * 317)
    ),
    (
        repair("condition: Ready, after: 30m"),
        of_rule("condition"),
        "makes every node sick: Ready is True on a sound one",
        "write status: [False, Unknown]",
    ),
    (
        repair("condition: Ready, status: [True], after: 30m"),
        of_rule("status"),
        "makes every node",
        "[False, Unknown]",
    ),
    (
        repair("condition: MemoryPressure, status: [False, Unknown], after: 30m"),
        of_rule("status"),
        "makes every node sick: MemoryPressure is False on a sound one",
        "write status: [True, Unknown]",
    ),
    (
        repair(
            f"{READY}}}, {{condition: Ready, status: [Unknown, False], after: 1h, action: restart"
        ),
        of_rule("condition", 1),
        "says twice what happens to condition 'Ready'",
        "keep one",
    ),
    (
        repair(f"{READY}, groups: [web, api]}}, {{{READY}, groups: [api, web]"),
        of_rule("condition", 1),
        "says twice what happens to condition 'Ready'",
        "keep one",
    ),
    (
        repair("}, {".join(f"condition: C{number}, after: 1h" for number in range(51))),
        "p.yaml:8: spec.nodeLifecycle.repair",
        "has 51 rules",
        "at most 50",
    ),
    (
        repair("condition: A, after: 1h, action: restart", "clusterapi: {}"),
        of_rule("action"),
        "clusterapi cannot restart a node",
        "write action: replace",
    ),
    (
        repair("condition: A, after: 1h, action: restart", "clusterapi: {}", EXOSCALE),
        of_rule("action"),
        "clusterapi cannot restart a node",
        "write action: replace, or name the groups of other providers in groups",
    ),
    (
        repair(
            "condition: A, after: 1h, action: restart, groups: [MachineSet/a/b]", "clusterapi: {}"
        ),
        of_rule("action"),
        "clusterapi cannot restart a node",
        "write action: replace",
    ),
    (
        of_providers(
            f"{EXOSCALE}, clusterapi: {{}}",
            f"nodeLifecycle: {{repair: [{{{READY}, action: restart, groups: [web, db]}}]}}",
            NODES,
        ),
        of_rule("action"),
        "clusterapi cannot restart a node",
        "write action: replace",
    ),
]


@each_row(("text", "place", "problem", "remedy"), [*LIFE, *RULES])
def test_policy_node_lifecycle_errors_name_their_place(
    text: str, place: str, problem: str, remedy: str
) -> None:
    (reported,) = refusals(text)
    assert reported.startswith(f"{place}: ")
    assert problem in reported
    assert remedy in reported
    assert "\n" not in reported


@each_row("groups", ["[web]", "[web, other-pool]"])
def test_policy_restarts_of_groups_that_may_restart_are_accepted(groups: str) -> None:
    rule = f"{{condition: A, after: 1h, action: restart, groups: {groups}}}"
    policy = read(
        of_providers(f"{EXOSCALE}, clusterapi: {{}}", NODES, f"nodeLifecycle: {{repair: [{rule}]}}")
    )
    assert policy.node_lifecycle is not None
    assert policy.node_lifecycle.repair[0].action is RepairAction.RESTART


def test_policy_repair_rules_of_one_condition_differ_by_status_or_groups() -> None:
    rules = (
        f"{{{READY}}}, {{{READY}, groups: [web]}}, {{condition: Ready, status: [Unknown], after: "
        f"10m}}"
    )
    policy = read(of_providers(EXOSCALE, f"nodeLifecycle: {{repair: [{rules}]}}"))
    assert policy.node_lifecycle is not None
    assert len(policy.node_lifecycle.repair) == 3


def test_policy_with_all_sections_about_needed_nodes_is_accepted_without_a_warning() -> None:
    text = of_providers(
        (
            "alicloud: {region: cn-hangzhou, credentialsSecret: a/b, nodes: ['0:9:asg-a', "
            "'0:9:asg-b']}"
        ),
        "consolidation: {mode: full, groups: [asg-a], aggressiveness: 2, minSavings: 10%}",
        "disruptionBudgets: [{name: always, nodes: 10%}, {name: office, nodes: 0, reasons: "
        "[consolidation, expired], "
        'cron: "0 8 * * 1-5", duration: 10h, timeZone: Europe/Zurich}]',
        "nodeLifecycle:",
        "  maxNodeAge: 720h",
        "  drift: replace",
        "  repair:",
        "    - {condition: Ready, status: [False, Unknown], after: 30m, action: replace}",
        "    - {condition: KernelDeadlock, status: [True], after: 10m, action: restart}",
        "spot: {groups: [asg-b], maxShare: 50%, onDemandBase: 2, returnAfter: 1h}",
        "prices: {instanceTypes: {m5.large: 0.096}, spot: {m5.large: 0.035}}",
    )
    policy = read(text)
    assert warnings(text) == ()
    assert read(dump(policy)) == policy
    assert policy.node_lifecycle is not None
    assert [rule.status for rule in policy.node_lifecycle.repair] == [
        ("False", "Unknown"),
        ("True",),
    ]


def test_policy_node_may_live_exactly_as_long_as_a_replacement_needs() -> None:
    policy = read(
        with_spec("nodeLifecycle: {maxNodeAge: 1h}\nconsolidation: {replaceTimeout: 30m}")
    )
    assert policy.node_lifecycle == NodeLifecycle(max_node_age=3600.0)


# --- what is warned about


@each_row(
    ("text", "expected"),
    [
        (lifecycle(""), []),
        (lifecycle("drift: report"), []),
        (lifecycle("drift: off"), []),
        (lifecycle("drift: report, groups: [workers]"), []),
        (lifecycle("maxNodeAge: 720h, jitter: 20%, expiryGrace: 1h, annotations: false"), []),
        (
            with_spec("nodeLifecycle:"),
            [
                (
                    "p.yaml:9: spec.nodeLifecycle: has no value and counts as {}: nodes that are "
                    "not as their group is "
                    "defined now are reported; take the line out, or write {}"
                )
            ],
        ),
        (
            with_spec(
                "nodeLifecycle: {drift: report, repair: [{condition: Lost, after: 10m, action: "
                "restart}]}\n"
                "consolidation: {maxSurge: 0}"
            ).replace("clusterapi: {clusterName: prod-geneva}", EXOSCALE),
            [],
        ),
        (lifecycle("jitter: 20%"), [f"{key('jitter')}: has no effect without maxNodeAge"]),
        (lifecycle("expiryGrace: 1h"), [f"{key('expiryGrace')}: has no effect without maxNodeAge"]),
        (lifecycle("maxUnhealthy: 40%"), [f"{key('maxUnhealthy')}: has no effect without repair"]),
        (
            lifecycle("drift: off, groups: [workers]"),
            [f"{key('groups')}: has no effect: nodes have no maxNodeAge, and drift is off"],
        ),
        (
            lifecycle("annotations: false"),
            [f"{key('annotations')}: has no effect: nodes have no maxNodeAge, and drift is report"],
        ),
        (
            repair("condition: A, after: 5m, flapTime: 6m"),
            [
                (
                    f"{of_rule('flapTime')}: is longer than after, so a node may be repaired whose "
                    "condition is long over"
                )
            ],
        ),
        (
            with_spec(
                "nodeLifecycle: {maxNodeAge: 720h, drift: replace}\noptions: {scaleDownEnabled: "
                "false}"
            ),
            [
                f"{key(name)}: removes nothing: options.scaleDownEnabled is false"
                for name in ("maxNodeAge", "drift")
            ],
        ),
        (
            of_providers(CHERRY, "nodeLifecycle: {maxNodeAge: 720h}"),
            [
                (
                    "p.yaml:8: spec.nodeLifecycle.maxNodeAge: machines of cherryservers take 30 to "
                    "60 minutes; write "
                    "consolidation: {replaceTimeout: 75m}"
                )
            ],
        ),
        (
            of_providers(
                CHERRY, "nodeLifecycle: {maxNodeAge: 720h}", "consolidation: {replaceTimeout: 75m}"
            ),
            [],
        ),
    ],
)
def test_policy_node_lifecycle_without_effect_is_warned_about(
    text: str, expected: list[str]
) -> None:
    assert list(warnings(text)) == expected


@each_row(
    ("fields", "fits"),
    [
        ("maxNodeAge: 720h", False),
        ("drift: replace", False),
        ("drift: report", True),
        ("maxUnhealthy: 10%, repair: [{condition: A, after: 1h}]", True),
    ],
)
def test_policy_windows_too_short_to_replace_old_nodes_are_warned_about(
    fields: str, *, fits: bool
) -> None:
    window = 'maintenanceWindows: [{name: nights, cron: "0 22 * * *", duration: 37m}]'
    text = (
        "p.yaml:10: spec.maintenanceWindows[0].duration: no replacement fits into window 'nights': "
        "it may take 37m35s "
        "to buy nodes and to drain the old ones"
    )
    assert warnings(with_spec(f"nodeLifecycle: {{{fields}}}\n{window}")) == (
        () if fits else (text,)
    )


@each_row(
    ("fields", "reasons", "expected"),
    [
        ("maxNodeAge: 720h", ", reasons: [expired]", ""),
        ("drift: replace", ", reasons: [drifted]", ""),
        ("repair: [{condition: A, after: 1h}]", ", reasons: [repair]", ""),
        ("maxNodeAge: 720h", "", ""),
        (
            "drift: report",
            ", reasons: [drifted]",
            (
                ".reasons: nothing is removed for this reason: drifted; it needs nodeLifecycle "
                "with drift: replace"
            ),
        ),
        (
            "maxNodeAge: 720h",
            ", reasons: [expired, drifted, repair]",
            (
                ".reasons: nothing is removed for this reason: drifted, repair; it needs "
                "nodeLifecycle with "
                "drift: replace, repair"
            ),
        ),
        (
            "maxNodeAge: 720h",
            ", reasons: [consolidation]",
            ": limits nothing: consolidation is off",
        ),
    ],
)
def test_policy_budgets_of_reasons_that_nothing_has_are_warned_about(
    fields: str, reasons: str, expected: str
) -> None:
    text = with_spec(
        f"nodeLifecycle: {{{fields}}}\ndisruptionBudgets: [{{name: a, nodes: 1{reasons}}}]"
    )
    assert warnings(text) == (
        (f"p.yaml:10: spec.disruptionBudgets[0]{expected}",) if expected else ()
    )
