"""Invalid documents are refused at the right position with the expected form, and all
errors are reported at once.
"""

from __future__ import annotations

import pytest

from chalicelib.model.errors import InputErrors
from chalicelib.policy.load import load
from tests.cases import each_row
from tests.unit.policy.policy_documents import with_access, with_options, with_providers
from tests.unit.policy.refused_documents import (
    THE_ACCESS,
    THE_ENVELOPE,
    THE_FILE,
    THE_GROUPS,
    THE_PROVIDERS,
    THE_SPEC,
)
from tests.unit.policy.refused_options import THE_OPTIONS, THE_PRICES


def refusals(text: str) -> list[str]:
    with pytest.raises(InputErrors) as refused:
        load(text, place="p.yaml")
    return [str(problem) for problem in refused.value.problems]


CASES = [
    *THE_FILE,
    *THE_ENVELOPE,
    *THE_SPEC,
    *THE_ACCESS,
    *THE_PROVIDERS,
    *THE_GROUPS,
    *THE_OPTIONS,
    *THE_PRICES,
]


@each_row(
    ("text", "place", "problem", "remedy"),
    CASES,
    ids=[f"{case[1]}-{case[2]}"[:70] for case in CASES],
)
def test_policy_errors_name_their_position(
    text: str, place: str, problem: str, remedy: str
) -> None:
    reported = refusals(text)
    fitting = [
        line
        for line in reported
        if line.startswith(f"{place}: ")
        and problem in line
        and remedy in line[line.index(problem) :]  # the problem comes first
    ]
    assert len(fitting) == 1, reported
    assert all("\n" not in line for line in reported)


def test_policy_errors_are_reported_at_once_in_document_order() -> None:
    text = (
        "apiVersion: outscaler.dev/v1\n"
        "kind: Cluster\n"
        "metadata: {name: Geneva}\n"
        "spec:\n"
        "  mode: aktive\n"
        "  kubernetes: {kubeconfigSecret: a, eksCluster: b}\n"
        "  providers: {clusterapi: {}}\n"
        "  nodeGroups:\n"
        "    - {provider: clusterapi, id: MachineDeployment/a/b, min: 3, max: 1}\n"
        "    - {provider: foo, id: MachineDeployment/a/b, min: 9, max: x}\n"
        "  options:\n"
        "    maxNodesTotal: many\n"
        "    maxNodesTotal: 3\n"
        "  headroom: [{}]\n"
    )
    assert [line.split(": ")[0] + " " + line.split(": ")[1] for line in refusals(text)] == [
        "p.yaml:3 metadata.name",
        "p.yaml:5 spec.mode",
        "p.yaml:6 spec.kubernetes.eksCluster",
        "p.yaml:9 spec.nodeGroups[0].max",
        "p.yaml:10 spec.nodeGroups[1].provider",
        "p.yaml:10 spec.nodeGroups[1].max",
        "p.yaml:10 spec.nodeGroups[1].id",
        "p.yaml:12 spec.options.maxNodesTotal",
        "p.yaml:13 spec.options.maxNodesTotal",
        "p.yaml:14 spec.headroom[0].name",
    ]


@each_row(
    ("chain", "says"),
    [
        (
            "[random, least-waste]",
            "names another expander after random; random leaves nothing to choose: put it last",
        ),
        (
            "random,least-waste",
            "names another expander after random; random leaves nothing to choose: put it last",
        ),
        ("[least-waste, least-waste]", "names least-waste twice; name each expander once"),
        ("least-waste,random,random", "names random twice; name each expander once"),
    ],
    ids=["X5-after-random", "X5-as-a-flag", "X5-twice", "X5-random-twice"],
)
def test_policy_refuses_an_expander_chain_that_upstream_refuses(chain: str, says: str) -> None:
    assert f"p.yaml:10: spec.options.expander: {says}" in refusals(
        with_options(f"expander: {chain}")
    )


def test_policy_error_does_not_repeat_a_pasted_secret() -> None:
    pasted = "hunter2 is my secret!"
    reported = refusals(with_access(f"{{kubeconfigSecret: '{pasted}'}}"))
    reported += refusals(with_providers(f"{{exoscale: {{apiToken: '{pasted}'}}}}"))
    assert not any("hunter2" in line for line in reported)


def test_policy_refuses_a_billion_laughs_before_expansion() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [
        f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 10)}]" for level in range(1, 10)
    ]
    (reported,) = refusals("\n".join(lines))
    assert "more than 20000 values once aliases are written out" in reported


def test_policy_errors_shorten_long_text() -> None:
    (reported,) = refusals(with_options(f"maxNodesTotal: {'9a' * 5000}"))
    assert len(reported) < 300
