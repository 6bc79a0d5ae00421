"""Regular expressions from untrusted sources: priorities of a ConfigMap and
labels from Cluster API.
"""

from __future__ import annotations

import time

import pytest

from chalicelib.model.errors import BadInput
from chalicelib.model.reason import ReasonCode
from chalicelib.plan.scale_up.expanders import ExpanderContext, Option, keep_highest_priority
from chalicelib.policy import priority_configmap
from chalicelib.providers.clusterapi.models import (
    CapiResource,
    MachineTemplate,
    ResourceMetadata,
    ResourceSpec,
    TemplateMetadata,
)
from chalicelib.providers.clusterapi.node_template import Infrastructure, template_labels
from chalicelib.providers.clusterapi.settings import read_settings
from tests.builders import node


def _config(*patterns: str) -> str:
    return "10:\n" + "".join(f"  - '{text}'\n" for text in patterns)


def test_thousand_large_priority_patterns_are_rejected_on_reading() -> None:
    started = time.process_time()
    found = priority_configmap.read(
        {"priorities": _config(*(f"(.?){{900}}#{at}" for at in range(1_000)))}
    )
    assert "repeat too much" in found.problem
    assert time.process_time() - started < 20.0


def test_priority_patterns_beyond_the_time_limit_are_reported_and_filter_nothing() -> None:
    """Each of them is allowed; looking for all of them in the names of two hundred
    groups could take seconds."""
    found = priority_configmap.read(
        {"priorities": _config(*(f"(.?){{900}}#{at}" for at in range(27)))}
    )
    names = [f"{at}/MachineDeployment/a-namespace/a-rather-long-name" for at in range(200)]
    options = [Option(name, 1, {0: 1}, node(name), {}, 0.0) for name in names]
    started = time.process_time()
    left, notes = keep_highest_priority(
        options, ExpanderContext(priorities=found, group_priorities=dict.fromkeys(names, 0))
    )
    assert found.problem == ""
    assert (left, [note.code for note in notes]) == (options, [ReasonCode.PRIORITY_CONFIG_INVALID])
    assert time.process_time() - started < 30.0


def test_thousand_ordinary_priority_patterns_are_accepted() -> None:
    found = priority_configmap.read(
        {"priorities": _config(*(f".*spot-{at}-[a-z]+.*" for at in range(1_000)))}
    )
    assert (found.problem, len(found.rules[0][1])) == ("", 1_000)


@pytest.mark.parametrize("pattern", ["^(a+)+$", "^(a|a)*$", "(.*a){20}", "^([a-z]+)*x"])
def test_label_pattern_with_catastrophic_backtracking_costs_no_time(pattern: str) -> None:
    settings = read_settings({"clusterName": "c", "syncMachineLabels": pattern})
    labels = {"a" * length + "!": "x" for length in range(20, 300)}
    resource = CapiResource(
        ResourceMetadata("r"), ResourceSpec(template=MachineTemplate(TemplateMetadata(labels)))
    )
    started = time.process_time()
    template_labels("t", "MachineDeployment", resource, settings, None, Infrastructure())
    assert time.process_time() - started < 10.0


def test_label_pattern_in_another_syntax_is_rejected() -> None:
    with pytest.raises(BadInput, match="is not a regular expression"):
        read_settings({"clusterName": "c", "syncMachineLabels": "a(?=b)"})
