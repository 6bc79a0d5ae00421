"""A dumped policy reads as the same policy; the committed reference equals the tables."""

from __future__ import annotations

from typing import Any, get_args, get_type_hints

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chalicelib.cli.serialize_policy import dump
from chalicelib.model.disruption_reason import DisruptionReason
from chalicelib.model.node import Taint
from chalicelib.model.scaling_rules import Metric, Rule
from chalicelib.policy.load import load
from chalicelib.policy.settings.cluster_options import Options
from chalicelib.policy.settings.cluster_policy import Policy
from chalicelib.policy.settings.consolidation import Consolidation, ConsolidationMode, Steering
from chalicelib.policy.settings.disruption_budgets import DisruptionBudget
from chalicelib.policy.settings.event_webhook import Webhook
from chalicelib.policy.settings.group_policy import GroupPolicy
from chalicelib.policy.settings.headroom import Headroom
from chalicelib.policy.settings.kubernetes_access import KubernetesAccess
from chalicelib.policy.settings.maintenance_window import Window
from chalicelib.policy.settings.managed_pools import (
    ManagedPool,
    Market,
    MaxShare,
    PoolLimits,
    PoolMode,
    Range,
    Requirements,
)
from chalicelib.policy.settings.max_disruption import MaxDisruption
from chalicelib.policy.settings.mode import Mode
from chalicelib.policy.settings.node_lifecycle import DriftAction, NodeLifecycle, RepairRule
from chalicelib.policy.settings.node_limit import NodeLimit
from chalicelib.policy.settings.node_prices import NodePrices
from chalicelib.policy.settings.scale_up import ScaleUp
from chalicelib.policy.settings.schedules import Schedule
from chalicelib.policy.settings.spot import InterruptionAction, RebalanceAction, Spot
from infra.tools.policy_reference import EXAMPLE
from tests.amounts import examples
from tests.unit.policy.policy_documents import ARCHITECTURE

seconds = st.one_of(
    st.integers(0, 10_000).map(float), st.integers(0, 100_000).map(lambda n: n / 1000)
)
words = st.from_regex(r"[a-z0-9]{1,8}", fullmatch=True)  # among them on, no, 012, 1e3 and similar
names = st.lists(words, max_size=3).map(tuple)
secrets = st.from_regex(r"[A-Za-z0-9/_-]{1,12}", fullmatch=True)
totals = st.tuples(st.integers(0, 50), st.integers(50, 99))

_BY_TYPE: dict[str, st.SearchStrategy[Any]] = {
    "bool": st.booleans(),
    "int": st.integers(1, 100),
    "float": st.floats(0, 1).map(lambda n: round(n, 3)),
    "tuple[str, ...]": names,
}
_BY_NAME: dict[str, st.SearchStrategy[Any]] = {
    "expander": st.just(("least-waste",)),
    "cores_total": totals,
    "memory_total": totals.map(lambda pair: (pair[0] * 2**30, pair[1] * 2**30)),
    "allowed_scheduler_names": st.just(()),
    "namespace": words,
    "status_config_map_name": words,
    # below those of rules
    "scale_down_utilization_threshold": st.integers(0, 700).map(lambda n: n / 1000),
    "drain_priority_config": st.just(()),  # not together with a changed maxGracefulTerminationSec
    "gpu_total": st.lists(
        st.tuples(words, st.integers(0, 4), st.integers(4, 9)),
        max_size=2,
        unique_by=lambda limit: limit[0],
    ).map(tuple),
}


def _option(name: str, type_: str) -> st.SearchStrategy[Any]:
    if name in _BY_NAME:
        return _BY_NAME[name]
    share = type_ == "float" and name.endswith(("threshold", "percentage", "ratio"))
    return _BY_TYPE[type_] if share or type_ != "float" else seconds


options = st.fixed_dictionaries(
    {},
    optional={
        name: _option(name, str(kind) if get_args(kind) else kind.__name__)
        for name, kind in get_type_hints(Options).items()
    },
).map(lambda values: Options(**values))
access = st.one_of(
    st.builds(
        KubernetesAccess,
        kubeconfig_secret=secrets,
        context=st.one_of(st.just(""), words),
        allow_insecure_tls=st.booleans(),
    ),
    st.builds(
        KubernetesAccess,
        eks_cluster=words,
        region=st.sampled_from(["", "eu-central-2"]),
        in_cluster_kubeconfig_secret=st.one_of(st.just(""), secrets),
    ),
    st.builds(
        KubernetesAccess,
        in_cluster_kubeconfig_secret=secrets,
        context=st.one_of(st.just(""), words),
    ),
)
groups = st.lists(
    st.builds(
        GroupPolicy,
        provider=st.just("huaweicloud"),
        id=words,
        min=st.none() | st.integers(0, 5),
        max=st.none() | st.integers(5, 9),
        priority=st.integers(-9, 9),
    ),
    max_size=3,
    unique_by=lambda group: group.id,
).map(tuple)
settings_of = st.one_of(
    st.fixed_dictionaries(
        {"autoDiscovery": st.just("clusterapi:\nclusterapi:a=b")},
        optional={"reservedCpu": st.just("200m")},
    ),
    st.fixed_dictionaries(
        {},
        optional={
            "labels": st.just("a=b,c=d"),
            "clusterName": words,
            "syncMachineLabels": st.just("^a\nb|c"),
        },
    ),
    st.fixed_dictionaries(
        {"kubeconfigSecret": words},
        optional={
            "context": words,
            "cloudConfigAuthoritative": st.sampled_from(["true", "false"]),
            "allowPoolShrink": st.sampled_from(["true", "false"]),
            "stuckAfter": st.just("1h30m"),
        },
    ),
)
_PRICE = st.one_of(
    st.integers(0, 10**9).map(float),
    st.integers(0, 10**12).map(lambda n: n / 10**12),
    st.floats(0, 100).map(lambda n: round(n, 4)),
)
_TYPES = st.dictionaries(
    st.one_of(words, st.sampled_from(["m5.large", "n1-standard-4", "Standard_D4s_v5"])),
    _PRICE,
    max_size=3,
)
prices = st.none() | st.builds(
    NodePrices,
    instance_types=_TYPES,
    cpu=_PRICE,
    memory=st.none() | _PRICE,
    gpu=st.none() | _PRICE,
    node=_PRICE,
    currency=st.sampled_from(["", "EUR", "CNY"]),
    as_of=st.sampled_from(["", "2026-07-01"]),
    spot=_TYPES,
)
limits = st.one_of(
    st.integers(1, 10**9 - 1).map(lambda number: NodeLimit(nodes=number)),
    st.integers(1, 100).map(lambda percentage: NodeLimit(share=percentage / 100)),
)
spot = st.tuples(st.booleans(), st.integers(1, 1000)).map(
    lambda pair: {"spot_to_spot": pair[0], "min_cheaper_groups": pair[1] if pair[0] else 3}
)
consolidations = st.tuples(
    st.builds(
        Consolidation,
        mode=st.sampled_from(ConsolidationMode),
        steering=st.sampled_from(Steering),
        patience=st.booleans(),
        groups=st.lists(words, max_size=2, unique=True).map(tuple),
        aggressiveness=st.integers(100, 1000).map(lambda number: number / 100),
        min_savings=st.integers(0, 99).map(lambda percentage: percentage / 100),
        quiet_time=seconds,
        min_node_age=seconds,
        confirm_after=seconds,
        max_surge=limits,
        max_replacements=st.integers(1, 1000),
        moves_per_pod_per_day=st.integers(0, 10_000),
        split_nodes=st.booleans(),
        replace_timeout=st.none() | st.integers(60, 86400).map(float),
    ),
    spot,
).map(lambda pair: msgspec.structs.replace(pair[0], **pair[1]))
_NAMED = st.lists(words, max_size=2, unique=True).map(tuple)
_DAYS = st.integers(0, 31 * 86400).map(float)
repairs = st.lists(
    st.builds(
        RepairRule,
        condition=st.sampled_from(["KernelDeadlock", "Ready", "example.com/GpuLost"]),
        after=st.integers(60, 31 * 86400).map(float),
        status=st.lists(
            st.sampled_from(["False", "Unknown"]), min_size=1, max_size=2, unique=True
        ).map(tuple)
        | st.just(("True",)),
        flap_time=st.integers(0, 86400).map(float),
        groups=_NAMED,
    ).filter(lambda rule: rule.condition != "Ready" or "True" not in rule.status),
    max_size=3,
    unique_by=lambda rule: (rule.condition, frozenset(rule.status), frozenset(rule.groups)),
).map(tuple)
lifecycles = st.none() | st.builds(
    NodeLifecycle,
    # longer than any replacement of this policy
    max_node_age=st.none() | st.integers(3 * 86400, 10**7).map(float),
    groups=_NAMED,
    jitter=st.integers(0, 50).map(lambda percentage: percentage / 100),
    expiry_grace=seconds,
    drift=st.sampled_from(DriftAction),
    repair=repairs,
    max_unhealthy=st.integers(0, 100).map(lambda percentage: percentage / 100),
    annotations=st.booleans(),
)
spots = st.none() | st.builds(
    Spot,
    groups=_NAMED,
    interruptions=st.sampled_from(InterruptionAction),
    avoid_after_interruption=_DAYS,
    return_after=_DAYS,
    max_share=st.integers(1, 100).map(lambda percentage: percentage / 100),
    on_demand_base=st.integers(0, 100_000),
    rebalance=st.sampled_from(RebalanceAction),
)
_LIMITED = [reason for reason in DisruptionReason if reason is not DisruptionReason.INTERRUPTED]
disruption_budgets = st.lists(
    st.builds(
        DisruptionBudget,
        name=words,
        nodes=limits | st.just(NodeLimit(nodes=0)) | st.just(NodeLimit(share=0.0)),
        groups=st.lists(words, max_size=2, unique=True).map(tuple),
        reasons=st.lists(st.sampled_from(_LIMITED), max_size=5, unique=True).map(tuple),
    ).flatmap(
        lambda budget: st.sampled_from(
            [
                budget,
                msgspec.structs.replace(
                    budget, cron="0 8 * * 1-5", duration=36000.0, time_zone="Europe/Zurich"
                ),
            ]
        )
    ),
    max_size=3,
    unique_by=lambda budget: budget.name,
).map(tuple)
_BOUND = st.integers(0, 9_999_999_999).map(lambda number: number / 1000)
ranges = st.none() | st.one_of(
    st.tuples(_BOUND, _BOUND).map(lambda pair: Range(min(pair), max(pair))),
    _BOUND.map(lambda least: Range(least=least)),
    _BOUND.map(lambda most: Range(most=most)),
)
_PERCENTAGES = st.integers(1, 100).map(lambda percentage: percentage / 100)
managed_pools = st.lists(
    st.builds(
        ManagedPool,
        name=words,
        provider=st.just("exoscale"),
        copy_from=words,
        requirements=st.builds(
            Requirements,
            types=st.sampled_from([(), ("standard.*", "!standard.tiny")]),
            families=_NAMED,
            cpu=ranges,
            memory=ranges,
            memory_per_cpu=ranges,
            gpus=ranges,
            zones=st.sampled_from([(), ("ch-gva-2",)]),
            markets=st.just((Market.ON_DEMAND,)),
            max_price=st.none() | _PRICE,
        ),
        labels=st.dictionaries(words, words | st.just(""), max_size=2),
        mode=st.sampled_from(PoolMode),
        taints=st.lists(
            st.builds(
                Taint,
                key=words,
                effect=st.sampled_from(["NoSchedule", "PreferNoSchedule", "NoExecute"]),
                value=words,
            ),
            max_size=2,
            unique=True,
        ).map(tuple),
        limits=st.builds(
            PoolLimits,
            nodes=st.integers(0, 100_000),
            cpu=st.none() | st.integers(0, 999),
            memory=st.none() | st.integers(0, 999),
            gpus=st.none() | st.integers(0, 999),
            cost_per_hour=st.none() | _PRICE,
        ),
        weight=st.integers(0, 100),
        max_pools=st.integers(1, 100),
        opening_factor=st.integers(0, 100).map(lambda percentage: percentage / 100),
        keep_empty=_DAYS,
        delete_empty=st.booleans(),
        min_types=st.integers(1, 20),
        max_share=st.builds(MaxShare, type=_PERCENTAGES, zone=_PERCENTAGES),
        strict=st.booleans(),
        disk=st.just(0) | st.integers(20, 51_200),
    ),
    max_size=2,
    unique_by=lambda pool: pool.name,
).map(tuple)
disruption = st.builds(
    MaxDisruption,
    nodes_per_hour=st.integers(0, 99),
    pods_per_hour=st.integers(0, 9999),
    share=st.one_of(
        st.sampled_from([0.0, 1.0, 1e-05]), st.integers(0, 10**6).map(lambda n: n / 10**6)
    ),
)
windows = st.lists(
    st.builds(
        Window,
        cron=st.sampled_from(["0 22 * * *", "30 2 1 * *", "0 8 * * MON"]),
        removals=st.booleans(),
        duration=st.integers(60, 86400).map(float),
        time_zone=st.sampled_from(["UTC", "Europe/Zurich"]),
        name=st.one_of(st.just(""), words),
    ),
    max_size=3,
    unique_by=lambda window: window.name or id(window),
).map(tuple)
rules = st.lists(
    st.one_of(
        st.builds(
            Rule,
            name=words,
            groups=st.lists(words, min_size=1, max_size=2, unique=True).map(tuple),
            cron=st.sampled_from(["47 20 * * *", "0 8 * * MON"]),
            add=st.integers(1, 10_000),
            time_zone=st.sampled_from(["UTC", "Europe/Zurich"]),
        ),
        st.builds(
            Rule,
            name=words,
            groups=words.map(lambda name: (f"only-{name}",)),
            metric=st.sampled_from(Metric),
            above=st.sampled_from([0, 71, 100]),
            add=st.integers(0, 9),
        ),
    ),
    max_size=3,
    unique_by=(lambda rule: rule.name, lambda rule: rule.groups),
).map(tuple)
schedules = st.lists(
    st.one_of(
        st.builds(
            Schedule,
            name=words,
            groups=words.map(lambda name: (f"only-{name}",)),
            cron=st.just("0 20 * * 1-5"),
            duration=st.integers(60, 86400).map(float),
            time_zone=st.sampled_from(["UTC", "Europe/Zurich"]),
            min=st.integers(0, 3),
            max=st.none() | st.integers(3, 9),
            headroom=st.none() | st.integers(0, 1000),
        ),
        st.builds(
            Schedule,
            name=words,
            cron=st.just("0 8 1 * *"),
            duration=st.just(90.0),
            groups=st.just(()),
            mode=st.sampled_from(["off", "shadow", "active"]),
        ),
    ),
    max_size=2,
    unique_by=(lambda schedule: schedule.name, lambda schedule: schedule.groups),
).map(tuple)
headrooms = st.lists(
    st.one_of(
        st.builds(
            Headroom,
            name=words,
            groups=words.map(lambda name: (name,)),
            pods=st.integers(1, 5000),
            cpu=st.integers(1, 10**6),
            memory=st.integers(0, 2**46),
        ),
        st.builds(Headroom, name=words, percent=st.integers(1, 1000)),
    ),
    max_size=3,
    unique_by=(lambda entry: entry.name, lambda entry: entry.groups),
).map(tuple)
scale_ups = st.builds(
    ScaleUp,
    unschedulable_pods=st.booleans(),
    rules=st.booleans(),
    cpu_threshold=st.sampled_from([71, 100]),
    memory_threshold=st.sampled_from([71, 100]),
    metric_min_interval=st.integers(0, 86400).map(float),
    cron_time_zone=st.sampled_from(["UTC", "Asia/Shanghai"]),
    horizontal_node_autoscalers=st.none() | st.booleans(),
    expected_cost=st.booleans(),
    learned_timeouts=st.booleans(),
)
policies = st.builds(
    Policy,
    rules=rules,
    schedules=schedules,
    headroom=headrooms,
    scale_up=scale_ups,
    max_disruption=disruption,
    consolidation=consolidations,
    disruption_budgets=disruption_budgets,
    node_lifecycle=lifecycles,
    spot=spots,
    maintenance_windows=windows,
    name=words,
    mode=st.sampled_from(Mode),
    scan_interval=st.integers(5, 3600).map(float),
    kubernetes=access,
    providers=st.fixed_dictionaries(
        {
            "huaweicloud": st.fixed_dictionaries(
                {
                    "region": st.sampled_from(["cn-north-4", "eu-west-101"]),
                    "credentialsSecret": secrets,
                    "clusterId": st.just("2292498e-1111-11ee-8b5e-0255ac1001ba"),
                },
                optional={
                    "agencyName": st.just("outscaler"),
                    "autodiscovery": st.sampled_from(["true", "false"]),
                },
            )
        },
        optional={"clusterapi": settings_of},
    ),
    node_groups=groups,
    options=options,
    prices=prices,
    webhook=st.one_of(
        st.just(Webhook()),
        st.builds(
            Webhook,
            secret=secrets,
            debounce=st.floats(0, 60).map(lambda n: round(n, 3)),
            reasons=st.lists(st.from_regex(r"[A-Z][a-z]{1,9}", fullmatch=True), max_size=2).map(
                tuple
            ),
        ),
    ),
)


@pytest.mark.more
@settings(max_examples=examples(40, 150), deadline=None)
@given(policies)
def test_policy_dump_reads_as_the_same_policy(policy: Policy) -> None:
    assert load(dump(policy), place="dumped")[0] == policy


@pytest.mark.more
@settings(max_examples=examples(40, 150), deadline=None)
@given(managed_pools)
def test_policy_dump_contains_managed_pools(pools: tuple[ManagedPool, ...]) -> None:
    exoscale = {"zone": "ch-gva-2", "credentialsSecret": "a/b"}
    policy = Policy(
        name="a",
        kubernetes=KubernetesAccess(eks_cluster="a"),
        providers={"exoscale": exoscale},
        options=Options(expander=("least-cost",)),
        prices=NodePrices(cpu=0.03),
        managed_pools=pools,
    )
    assert load(dump(policy), place="dumped")[0] == policy


@pytest.mark.parametrize("attributes", [{"spot": Spot()}, {"node_lifecycle": NodeLifecycle()}])
def test_policy_dump_contains_sections_that_ask_with_defaults_alone(
    attributes: dict[str, Any],
) -> None:
    policy = Policy(
        name="a",
        kubernetes=KubernetesAccess(eks_cluster="a"),
        providers={"clusterapi": {}},
        **attributes,
    )
    assert load(dump(policy), place="dumped")[0] == policy


def test_policy_dump_contains_drain_priorities() -> None:
    policy = Policy(
        name="a",
        kubernetes=KubernetesAccess(eks_cluster="a"),
        providers={"clusterapi": {}},
        options=Options(drain_priority_config=((-5, 0), (0, 60), (2000, 120))),
    )
    assert load(dump(policy), place="dumped")[0] == policy


def test_policy_version_belongs_to_the_store_and_not_to_the_document() -> None:
    policy, _ = load(ARCHITECTURE, place="p.yaml")
    assert dump(msgspec.structs.replace(policy, version=7)) == dump(policy)


def test_policy_reference_example_is_valid() -> None:
    assert load(EXAMPLE, place="docs")[1] == ()
