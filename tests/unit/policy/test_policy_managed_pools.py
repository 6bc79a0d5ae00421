"""managedPools: what is read and refused, alone and with the sections beside it."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec

from chalicelib.cli.serialize_policy import dump
from chalicelib.model.node import Taint
from chalicelib.model.policy_permissions import STRICT
from chalicelib.policy.compiled import compiled, decompiled
from chalicelib.policy.schema import section_of
from chalicelib.policy.settings.cluster_policy import Policy
from chalicelib.policy.settings.managed_pools import (
    MOST_POOLS,
    ManagedPool,
    Market,
    MaxShare,
    PoolLimits,
    PoolMode,
    Range,
    Requirements,
)
from tests.cases import each_row
from tests.unit.policy.policy_documents import GOOD
from tests.unit.policy.test_policy_consolidation import of_providers, read, warnings
from tests.unit.policy.test_policy_refusals import refusals

EXOSCALE = "exoscale: {zone: ch-gva-2, credentialsSecret: outscaler/a/exoscale}"
DEFINITION = "{region: LT-Siauliai, plan: B1-4-4gb-80s-shared, os: ubuntu_24_04}"
CHERRY = (
    "cherryservers: {credentialsSecret: outscaler/a/cherryservers, clusterName: a, "
    "nodes: ['0:1:metal'], "
    f"nodeGroupDefs: {{default: {DEFINITION}, metal: {DEFINITION}}}}}"
)
CHOICE = "options: {expander: least-cost}"
GROUP = "osc-c5f524-general-bc37acc1c6"


def pools(*entries: str, providers: str = f"{EXOSCALE}, {CHERRY}", more: str = CHOICE) -> str:
    """A document with these declarations, in line 9. more: line 8 of spec."""
    return of_providers(providers, more, f"managedPools: [{', '.join(entries)}]")


def of_exoscale(fields: str = "") -> str:
    """A declaration of Exoscale."""
    return f"{{name: general, provider: exoscale, copyFrom: workers, {fields}}}"


def of_cherry(fields: str = "") -> str:
    """A declaration of Cherry Servers."""
    return f"{{name: metal, provider: cherryservers, {fields}}}"


# --- what is read


def test_policy_without_managed_pools_is_stored_as_before() -> None:
    policy = read(GOOD)
    assert policy.managed_pools == ()
    assert "managedPools" not in msgspec.json.decode(msgspec.json.encode(policy))


def test_policy_stored_before_managed_pools_existed_is_read() -> None:
    stored = msgspec.json.encode({"name": "a", "providers": {"exoscale": {}}})
    assert msgspec.json.decode(stored, type=Policy).managed_pools == ()


COMPLETE = of_exoscale(
    "mode: off, requirements: {types: [standard.*, '!standard.tiny'], families: standard, "
    "cpu: 2..32, memory: 4.., memoryPerCpu: ..8, gpus: 0, zones: [ch-gva-2], markets: [on-demand], "
    "maxPrice: 0.8}, labels: {tier: general, example.com/level: 3, empty: ''}, "
    "taints: ['dedicated=batch:NoSchedule'], limits: {nodes: 90, cpu: 400, memory: 1600, gpus: 8, "
    "costPerHour: 40}, weight: 10, maxPools: 4, openingFactor: 3%, keepEmpty: 2h, "
    "deleteEmpty: true, minTypes: 2, maxShare: {type: 50%, zone: 40%}, strict: true, disk: 50"
)
POOL = ManagedPool(
    "general",
    "exoscale",
    copy_from="workers",
    mode=PoolMode.OFF,
    requirements=Requirements(
        types=("standard.*", "!standard.tiny"),
        families=("standard",),
        cpu=Range(2, 32),
        memory=Range(least=4),
        memory_per_cpu=Range(most=8),
        gpus=Range(0, 0),
        zones=("ch-gva-2",),
        markets=(Market.ON_DEMAND,),
        max_price=0.8,
    ),
    labels={"tier": "general", "example.com/level": "3", "empty": ""},
    taints=(Taint("dedicated", "NoSchedule", "batch"),),
    limits=PoolLimits(nodes=90, cpu=400, memory=1600, gpus=8, cost_per_hour=40.0),
    weight=10,
    max_pools=4,
    opening_factor=0.03,
    keep_empty=7200.0,
    delete_empty=True,
    min_types=2,
    max_share=MaxShare(type=0.5, zone=0.4),
    strict=True,
    disk=50,
)


def test_policy_managed_pool_with_every_key_is_read_and_written_back() -> None:
    policy = read(pools(COMPLETE))
    assert policy.managed_pools == (POOL,)
    assert read(dump(policy)) == policy
    form = compiled(policy, "text")
    assert form is not None
    assert decompiled(form, "text", policy.name, STRICT) == policy


def test_the_complete_managed_pool_has_every_key() -> None:
    assert {field.key for field in section_of(ManagedPool).fields} <= {
        part.strip(" {,").split(" ")[-1] for part in COMPLETE.split(":")
    }


def test_policy_managed_pool_has_usual_values_where_nothing_is_said() -> None:
    policy = read(pools(of_exoscale(), of_cherry()))
    assert policy.managed_pools == (
        ManagedPool("general", "exoscale", copy_from="workers"),
        ManagedPool("metal", "cherryservers"),
    )
    assert policy.managed_pools[0].limits.nodes == 100
    assert policy.managed_pools[0].requirements.markets == (Market.ON_DEMAND,)


@each_row(
    "fields",
    [
        "requirements: {markets: [on-demand, spot], zones: [LT-Siauliai, NL-Amsterdam]}",
        "requirements: , limits: , maxShare: ",
        "copyFrom: default",
        "copyFrom: metal",
    ],
)
def test_policy_managed_pool_of_cherryservers_is_accepted(fields: str) -> None:
    assert read(pools(of_cherry(fields))).managed_pools[0].provider == "cherryservers"


@each_row(
    "label",
    [
        "example.com/tier",
        "node-restriction.kubernetes.io/tier",
        "team.node-restriction.kubernetes.io/tier",
        "notkubernetes.io/tier",
        "kubernetes",
    ],
)
def test_policy_managed_pool_may_have_labels_of_other_domains(label: str) -> None:
    assert read(pools(of_exoscale(f"labels: {{{label}: a}}"))).managed_pools[0].labels == {
        label: "a"
    }


@each_row(
    ("text", "expected"),
    [
        ("8", Range(8, 8)),
        ("2..32", Range(2, 32)),
        ("0.5..", Range(least=0.5)),
        ("..32", Range(most=32)),
        ("1234567.125..", Range(least=1234567.125)),
    ],
)
def test_policy_range_of_requirements_is_read_and_written_back(text: str, expected: Range) -> None:
    policy = read(pools(of_exoscale(f"requirements: {{memory: '{text}'}}")))
    assert policy.managed_pools[0].requirements.memory == expected
    assert read(dump(policy)) == policy


@each_row(("value", "inside"), [(1.9, False), (2.0, True), (32.0, True), (32.1, False)])
def test_both_ends_of_a_range_belong_to_it(value: float, inside: bool) -> None:
    assert (value in Range(2, 32)) is inside


def test_groups_made_by_hand_without_prices_are_warned_about() -> None:
    (reported,) = warnings(pools(of_exoscale(), providers=EXOSCALE))
    assert reported.startswith("p.yaml:8: spec.options.expander: the groups of exoscale have no")


# --- what is refused

MOST = ", ".join(of_exoscale().replace("general", f"a{number}") for number in range(MOST_POOLS + 1))

#: document, place, problem, remedy
REFUSED: list[tuple[str, str, str, str]] = [
    # across sections
    (
        pools(of_exoscale(), more=""),
        "p.yaml:4: spec.options.expander",
        "does not begin with least-cost, which chooses the machines of managedPools",
        "write expander: least-cost",
    ),
    (
        pools(of_exoscale(), more="options: {expander: [priority, least-cost]}"),
        "p.yaml:8: spec.options.expander",
        "does not begin with least-cost",
        "write expander: [least-cost, priority]",
    ),
    (
        pools(of_exoscale(), of_exoscale()),
        "p.yaml:9: spec.managedPools[1].name",
        "general is already managedPools[0]",
        "give it another name",
    ),
    (
        pools(of_exoscale(), providers=CHERRY),
        "p.yaml:9: spec.managedPools[0].provider",
        "exoscale is not among spec.providers",
        "add exoscale there, or write one of: cherryservers",
    ),
    (
        pools("{name: a, provider: clusterapi}", providers="clusterapi: {}"),
        "p.yaml:9: spec.managedPools[0].provider",
        "managed pools of clusterapi are not supported yet",
        "supported: exoscale, cherryservers",
    ),
    (
        of_providers(
            EXOSCALE,
            CHOICE,
            f"managedPools: [{of_exoscale()}]",
            f"nodeGroups: [{{provider: exoscale, id: prod/{GROUP}, max: 3}}]",
        ),
        "p.yaml:10: spec.nodeGroups[0].id",
        "is made by managed pool 'general'",
        "set limits there",
    ),
    (
        of_providers(
            EXOSCALE,
            CHOICE,
            f"managedPools: [{of_exoscale().replace('general', 'batch-workers-of-team-one')}]",
            "nodeGroups: [{provider: exoscale, id: osc-c5f524-batch-workers-of-e47c1f124d}]",
        ),
        "p.yaml:10: spec.nodeGroups[0].id",
        "is made by managed pool 'batch-workers-of-team-one'",
        "set limits there",
    ),
    (
        of_providers(
            EXOSCALE,
            CHOICE,
            f"managedPools: [{of_exoscale()}]",
            f"schedules: [{{name: day, groups: [web, {GROUP}], cron: '0 8 * * *', duration: 1h, "
            "min: 1}]",
        ),
        "p.yaml:10: spec.schedules[0].min",
        "managed pools have no minimum",
        "use headroom",
    ),
    (pools(MOST), "p.yaml:9: spec.managedPools", "has 21 managed pools", "write at most 20"),
    # what each vendor can do
    (
        pools("{name: general, provider: exoscale}"),
        "p.yaml:9: spec.managedPools[0].copyFrom",
        "is missing",
        "name a Nodepool that was made by hand, such as copyFrom: workers",
    ),
    (
        pools(of_exoscale().replace("workers", GROUP)),
        "p.yaml:9: spec.managedPools[0].copyFrom",
        f"'{GROUP}' is made by Outscaler itself",
        "name a group that was made by hand",
    ),
    (
        pools(of_cherry("copyFrom: metall")),
        "p.yaml:9: spec.managedPools[0].copyFrom",
        "'metall' is no definition of nodeGroupDefs",
        "did you mean metal?",
    ),
    (
        pools(of_cherry("copyFrom: web")),
        "p.yaml:9: spec.managedPools[0].copyFrom",
        "'web' is no definition of nodeGroupDefs",
        "known: default, metal",
    ),
    (
        pools(of_exoscale("requirements: {markets: [on-demand, spot]}")),
        "p.yaml:9: spec.managedPools[0].requirements.markets[1]",
        "exoscale has no spot machines",
        "take it out",
    ),
    (
        pools(of_exoscale("requirements: {zones: [ch-gva-2, de-fra-1]}")),
        "p.yaml:9: spec.managedPools[0].requirements.zones[1]",
        "'de-fra-1' is not the zone of the cluster",
        "write ch-gva-2, or take zones out",
    ),
    (
        pools(of_exoscale("taints: ['nvidia.com/gpu:NoSchedule']")),
        "p.yaml:9: spec.managedPools[0].taints[0]",
        "Exoscale's taints have values",
        "write nvidia.com/gpu=true:NoSchedule",
    ),
    (
        pools(of_cherry("disk: 50")),
        "p.yaml:9: spec.managedPools[0].disk",
        "cherryservers has no choice of disk",
        "take it out",
    ),
    (
        pools(of_cherry("labels: {a: b}")),
        "p.yaml:9: spec.managedPools[0].labels",
        "the nodes of cherryservers get labels from their cloud-init",
        "write them there",
    ),
    (
        pools(of_cherry("taints: 'a=b:NoSchedule'")),
        "p.yaml:9: spec.managedPools[0].taints",
        "the nodes of cherryservers get taints from their cloud-init",
        "write them there",
    ),
    *(
        (
            pools(of_exoscale(f"labels: {{{label}: a}}")),
            f"p.yaml:9: spec.managedPools[0].labels['{label}']",
            f"'{label}' is a label that {owner} sets itself",
            "take it out",
        )
        for label, owner in (
            ("outscaler.dev/pool", "Outscaler"),
            ("kubernetes.io/role", "Kubernetes"),
            ("node-role.kubernetes.io/worker", "Kubernetes"),
            ("cluster-autoscaler.k8s.io/a", "Kubernetes"),
        )
    ),
    # values
    *(
        (
            pools(of_exoscale(fields)),
            f"p.yaml:9: spec.managedPools[0].{place}",
            problem,
            remedy,
        )
        for fields, place, problem, remedy in (
            ("requirements: {cpu: 32..2}", "requirements.cpu", "from 32 to 2 is empty", "2..32"),
            ("requirements: {cpu: many}", "requirements.cpu", "'many' is not a range", "2..32"),
            ("requirements: {cpu: '..'}", "requirements.cpu", "'..' is not a range", "..32 or 8"),
            (
                "requirements: {families: []}",
                "requirements.families",
                "names no family",
                "standard",
            ),
            ("requirements: {types: [a b]}", "requirements.types[0]", "'a b' is not", "standard.l"),
            ("requirements: {zones: [a, a]}", "requirements.zones", "names a twice", "zone once"),
            ("requirements: {markets: []}", "requirements.markets", "names no market", "on-demand"),
            ("requirements: {disk: 5}", "requirements.disk", "is unknown", "known here: types"),
            (
                "minTypes: 3, requirements: {types: [a, b]}",
                "minTypes",
                "only 2 types are allowed",
                "write minTypes: 2",
            ),
            (
                "minTypes: 2, requirements: {types: a}",
                "minTypes",
                "only 1 type is allowed",
                "write minTypes: 1",
            ),
            ("labels: {a/b/c: d}", "labels['a/b/c']", "is not a label's key", "example.com/tier"),
            ("labels: {tier: a b}", "labels.tier", "'a b' is not a label's value", "at most 63"),
            ("taints: [a]", "taints[0]", "'a' is not a taint", "dedicated=batch:NoSchedule"),
            (
                "taints: ['a=b:Never']",
                "taints[0]",
                "'Never' is not an effect",
                "NoExecute, NoSchedule",
            ),
            ("limits: {nodes: -1}", "limits.nodes", "-1 is out of range", "0 to 100000"),
            ("maxShare: {zone: 0%}", "maxShare.zone", "'0%' is out of range", "from 1% to 100%"),
            ("maxPools: 101", "maxPools", "101 is out of range", "from 1 to 100"),
            ("disk: 10", "disk", "10 is out of range", "from 20 to 51200"),
            ("weight: 101", "weight", "101 is out of range", "from 0 to 100"),
            ("keepEmpty: 745h", "keepEmpty", "'745h' is out of range", "to 744h"),
            ("openingFactor: 101%", "openingFactor", "'101%' is out of range", "0% to 100%"),
            ("typesPerPool: 2", "typesPerPool", "is unknown", "policy.md lists"),
        )
    ),
    (
        pools(
            of_exoscale().replace("general", "workers-of-team-a"),
            of_exoscale().replace("general", "workers-of-team-b"),
        ),
        "p.yaml:9: spec.managedPools[1].name",
        "begins with the same 16 characters as 'workers-of-team-a'",
        "give it another name",
    ),
    (
        pools(of_cherry("deleteEmpty: true")),
        "p.yaml:9: spec.managedPools[0].deleteEmpty",
        "groups of cherryservers end with their last server",
        "take it out",
    ),
    (
        pools(of_exoscale().replace("general", "General")),
        "p.yaml:9: spec.managedPools[0].name",
        "'General' is not a name of small letters",
        "general",
    ),
    (
        pools(of_exoscale().replace("provider: exoscale", "provider: exoscal")),
        "p.yaml:9: spec.managedPools[0].provider",
        "'exoscal' is not a provider",
        "did you mean exoscale?",
    ),
]


@each_row(("text", "place", "problem", "remedy"), REFUSED)
def test_policy_managed_pool_errors_name_their_place(
    text: str, place: str, problem: str, remedy: str
) -> None:
    (reported,) = refusals(text)
    assert reported.startswith(f"{place}: ")
    assert problem in reported
    assert remedy in reported[reported.index(problem) + len(problem) :]
    assert "\n" not in reported


def test_policy_groups_that_no_declaration_made_may_have_bounds() -> None:
    other = GROUP.replace("general", "batch")
    text = of_providers(
        EXOSCALE,
        CHOICE,
        f"managedPools: [{of_exoscale()}]",
        f"nodeGroups: [{{provider: exoscale, id: {other}, max: 3}}]",
    )
    assert read(text).node_groups[0].id == other


def test_refusals_of_the_page_are_those_of_the_tests() -> None:
    page = Path("docs/reference/managed-pools.md").read_text("utf-8")
    rows = page.split("### Refused declarations")[1].split("|---|---|\n")[1].splitlines()
    quoted = [text for row in rows for text in re.findall("^`(.*?)`", row.split(" | ")[-1])]
    tested = [problem for _, _, problem, _ in REFUSED]
    assert len(quoted) > 12
    assert [text for text in quoted if not any(text in problem for problem in tested)] == []
