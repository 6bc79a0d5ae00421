"""The options table compared with the model and with upstream's list of flags."""

from __future__ import annotations

import re

import msgspec
import pytest

from chalicelib.cli.option_overrides import with_options as override
from chalicelib.model.errors import BadInput, InputErrors
from chalicelib.policy.load import load
from chalicelib.policy.option_tables import OptionDefinition, Status
from chalicelib.policy.options import FLAGS, ROWS, attribute, default_text
from chalicelib.policy.settings.cluster_options import Options
from chalicelib.policy.settings.cluster_policy import Policy
from chalicelib.policy.settings.node_prices import NodePrices
from tests.cases import each_row
from tests.reference_data import SHARED, needs_shared
from tests.unit.policy.policy_documents import with_options

REFERENCE = SHARED.joinpath("reference", "core", "options").with_suffix(".md")

# Words in the first column of the flag reference that are not flags.
_NOT_FLAGS = {"and", "friends", "logging", "flags", "default"}
# Abbreviations in the flag reference, as in `provisioning-request-initial-backoff-time
# 1m, -max-backoff-time 10m`.
_SHORTENED = {
    "provisioning-request-max-backoff-time",
    "provisioning-request-max-backoff-cache-size",
    "check-capacity-provisioning-request-max-batch-size",
    "check-capacity-provisioning-request-batch-timebox",
    "check-capacity-processor-instance",
}


def upstream_flags() -> set[str]:
    """Returns the first columns of the tables in the flag reference."""
    text = (REFERENCE).read_text(encoding="utf-8")
    tables = text[text.index("## 2.") : text.index("## 11.")]
    cells = re.findall(r"^\| ([^|]+) \|", tables, re.MULTILINE)
    words = {
        word for cell in cells for word in re.findall(r"(?<![\w-])[a-z][a-z0-9-]*(?![\w.])", cell)
    }
    return (words - _NOT_FLAGS) | _SHORTENED


@pytest.mark.shared
@needs_shared
def test_policy_options_have_a_row_for_every_upstream_flag() -> None:
    flags = upstream_flags()
    assert len(flags) > 120
    assert flags - set(FLAGS) - {"off", "false", "true", "s", "m"} == set()


@pytest.mark.shared
@needs_shared
def test_policy_options_defaults_equal_upstreams() -> None:
    ours = {"blocking-system-pod-distruption-timeout": "87600h"}  # docs/differences.md
    text = (REFERENCE).read_text(encoding="utf-8")
    stated = dict(re.findall(r"^\| ([a-z][a-z0-9-]+) \| ([^|]+?) \|", text, re.MULTILINE))
    for row in ROWS.values():
        if row.status is Status.IN_FORCE:
            said = re.match(r"[^\s(;]*", stated[row.flag])
            assert said is not None
            expected = "" if said[0] in {"[]", '""'} else said[0]
            assert default_text(row) == ours.get(row.flag, expected), row.flag


def test_policy_options_of_the_model_have_exactly_one_row_in_force() -> None:
    landing = [attribute(row) for row in ROWS.values() if row.status is Status.IN_FORCE]
    assert sorted(landing) == sorted(field.name for field in msgspec.structs.fields(Options))


@each_row(
    "row",
    [row for row in ROWS.values() if row.status is not Status.ELSEWHERE],
    ids=lambda row: row.name,
)
def test_policy_options_accept_their_own_default(row: OptionDefinition) -> None:
    text = default_text(row)
    policy, _ = load(with_options(f"{row.name}: '{text}'" if text else "{}"), place="p.yaml")
    assert policy.options == Options(), "a default written down changes nothing"


def test_command_line_settings_override_a_policy() -> None:
    policy = Policy(name="a", options=Options(max_nodes_total=5))
    changed = override(
        policy,
        [
            "scaleDownUnneededTime=5m",
            "startupTaint=[a, b]",
            "coresTotal={max: 9}",
            "maxNodesTotal=7",
        ],
    )
    assert changed.options == Options(
        max_nodes_total=7,
        scale_down_unneeded_time=300.0,
        startup_taint=("a", "b"),
        cores_total=(0, 9),
    )
    assert changed.name == "a"


def test_command_line_settings_not_in_force_are_reported() -> None:
    reported: list[str] = []
    assert override(
        Policy(name="a"), ["capacityQuotasEnabled=true"], warn=reported.append
    ) == Policy(name="a")
    assert reported == ["--option: capacityQuotasEnabled: accepted, not in force in this version"]


def test_command_line_settings_repeat_no_warning_of_the_policy() -> None:
    reported: list[str] = []
    policy = Policy(
        name="a",
        options=Options(balancing_label=("a",), initial_node_group_backoff_duration=9000.0),
    )
    override(policy, ["maxNodesTotal=7"], warn=reported.append)
    assert reported == []
    override(policy, ["balancingIgnoreLabel=b"], warn=reported.append)
    assert reported == [
        (
            "--option: balancingIgnoreLabel: has no effect together with balancingLabel, which "
            "alone decides similarity"
        )
    ]


SETTINGS: dict[str, tuple[str, object]] = {
    "gpuTotal": ("[t4:0:8]", (("t4", 0, 8),)),
    "enforceNodeGroupMinSize": ("true", True),
    "forceDs": ("true", True),
    "nodeInfoCacheExpireTime": ("1h", 3600.0),
    "namespace": ("autoscaling", "autoscaling"),
    "pendingPodsBatchingTimeout": ("1s", 1.0),
    "maxNodegroupBinpackingDuration": ("2s", 2.0),
    "maxBinpackingTime": ("3s", 3.0),
    "balanceSimilarNodeGroups": ("true", True),
    "balancingIgnoreLabel": ("a,b", ("a", "b")),
    "balancingLabel": ("[c]", ("c",)),
    "memoryDifferenceRatio": ("0.1", 0.1),
    "maxFreeDifferenceRatio": ("0.2", 0.2),
    "maxAllocatableDifferenceRatio": ("0.3", 0.3),
    "expander": ("most-pods,random", ("most-pods", "random")),
}


@each_row("name", SETTINGS)
def test_command_line_settings_cover_scale_up_options(name: str) -> None:
    text, value = SETTINGS[name]
    reported: list[str] = []
    options = override(Policy(name="a"), [f"{name}={text}"], warn=reported.append).options
    assert getattr(options, attribute(ROWS[name])) == value
    assert reported == []


@each_row("chain", ["price", "[least-cost, least-waste]"])
def test_command_line_price_expander_needs_a_policy_with_prices(chain: str) -> None:
    with pytest.raises(
        InputErrors,
        match=r"--option: expander: (price|least-cost) cannot work without prices; "
        r"add spec.prices, such as prices: \{cpu",
    ):
        override(Policy(name="a"), [f"expander={chain}"])
    priced = Policy(name="a", prices=NodePrices(cpu=1.0))
    assert override(priced, [f"expander={chain}"]).options.expander == tuple(
        chain.strip("[]").split(", ")
    )


@each_row("chain", ["price", "[least-cost, least-waste]"])
def test_command_line_price_expander_accepts_a_provider_with_prices(chain: str) -> None:
    reported: list[str] = []
    priced = Policy(name="a", providers={"cherryservers": {}})
    assert (
        override(priced, [f"expander={chain}"], warn=reported.append).options.expander[0] in chain
    )
    assert reported == []
    mixed = Policy(name="a", providers={"exoscale": {}, "cherryservers": {}})
    override(mixed, [f"expander={chain}"], warn=reported.append)
    assert len(reported) == 1
    assert "the groups of exoscale have no price and are not chosen by" in reported[0]
    reported.clear()
    override(
        msgspec.structs.replace(mixed, prices=NodePrices(cpu=1.0)),
        [f"expander={chain}"],
        warn=reported.append,
    )
    asked = msgspec.structs.replace(mixed, options=override(mixed, [f"expander={chain}"]).options)
    override(asked, ["maxNodesTotal=9"], warn=reported.append)
    assert reported == [], "what the policy itself says has been told when it was read"


def test_command_line_setting_errors_are_reported_all_at_once() -> None:
    with pytest.raises(InputErrors) as refused:
        override(
            Policy(name="a"),
            ["maxNodesTotal", "maxNodesTotal=x", "scale-down-enabled=true", "expander=grpc"],
        )
    assert str(refused.value).splitlines() == [
        "--option: maxNodesTotal: has no value; write NAME=VALUE, such as scaleDownUnneededTime=5m",
        (
            "--option: maxNodesTotal: 'x' is not a whole number; write a whole number of 0 or "
            "more, in digits"
        ),
        "--option: scale-down-enabled: is the command line's spelling; write scaleDownEnabled",
        (
            "--option: expander: grpc asks a server of yours, which this version cannot; "
            "available: random, most-pods, least-waste, least-nodes, price, priority, least-cost"
        ),
    ]


def test_command_line_malformed_list_is_an_input_error() -> None:
    with pytest.raises(BadInput, match="--option startupTaint:1: not YAML"):
        override(Policy(name="a"), ["startupTaint=[a"])
