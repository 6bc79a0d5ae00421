"""The JSON schema accepts every document that validate accepts, and refuses
what an editor should mark.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from chalicelib.cli.main import main
from chalicelib.policy.document import json_schema
from chalicelib.policy.load import load
from infra.tools.policy_reference import EXAMPLE
from tests.cases import each_row
from tests.unit.policy.policy_documents import GOOD

VALIDATOR = jsonschema.Draft7Validator(json_schema())


class Words(yaml.SafeLoader):
    """YAML 1.2's booleans, as editors read them: `off` is a word."""


Words.yaml_implicit_resolvers = {
    first: [
        (tag, pattern)
        for tag, pattern in found
        if tag != "tag:yaml.org,2002:bool" or first in "tTfF"
    ]
    for first, found in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def problems(text: str) -> list[str]:
    document = yaml.load(text, Loader=Words)  # a SafeLoader
    return [
        f"{'.'.join(map(str, each.path))}: {each.message}"
        for each in VALIDATOR.iter_errors(document)
    ]


def with_spec(**spec: Any) -> str:
    base: dict[str, Any] = yaml.safe_load(EXAMPLE)
    base["spec"] |= spec
    return yaml.safe_dump(base)


def test_schema_is_valid_json_schema(capsys: pytest.CaptureFixture[str]) -> None:
    jsonschema.Draft7Validator.check_schema(json_schema())
    assert main(["schema"]) == 0
    assert json.loads(capsys.readouterr().out) == json_schema()


def accepted() -> list[str]:
    pages = [*Path("docs").rglob("*.md"), Path("README.md")]
    blocks = [
        block.split("```")[0] for page in pages for block in page.read_text().split("```yaml\n")[1:]
    ]
    return [
        block
        for block in blocks
        if block.startswith("apiVersion: outscaler.dev/v1") and "…" not in block
    ]


def test_schema_accepts_all_documents_that_validate_accepts() -> None:
    documents = [GOOD, EXAMPLE, *accepted()]
    assert len(documents) > 3
    for text in documents:
        load(text, place="document")
        assert problems(text) == [], text


@each_row(
    "spec",
    [
        {"mode": "off"},
        {
            "options": {
                "coresTotal": "0:10",
                "memoryTotal": {"min": 0, "max": 5},
                "expander": "random",
            }
        },
        {
            "options": {
                "expander": ["priority", "random"],
                "maxNodesTotal": "5",
                "scaleDownEnabled": "false",
            }
        },
        {"prices": {"instanceTypes": {"m5.large": 0.096}, "cpu": "0.03"}},
        {"rules": [{"name": "e", "groups": ["a"], "cron": "0 5 * * *", "add": 1}]},
        {"headroom": [{"name": "h", "pods": 3, "cpu": "500m"}]},
        {
            "consolidation": {
                "mode": "full",
                "maxSurge": "10%",
                "minSavings": "15%",
                "aggressiveness": "2.5",
            }
        },
        {"consolidation": {"steering": True, "patience": True}},
        {"consolidation": {"steering": "false", "patience": "false"}},
        {"consolidation": {"steering": "always", "patience": "off"}},
        {"consolidation": None, "prices": {"cpu": 1, "currency": "EUR", "asOf": "2026-07-01"}},
        {"disruptionBudgets": [{"name": "a", "nodes": 3, "reasons": "unneeded"}]},
        {
            "disruptionBudgets": [
                {"name": "a", "nodes": "10 %", "reasons": ["consolidation", "drifted"]}
            ]
        },
        {
            "managedPools": [
                {
                    "name": "general",
                    "provider": "exoscale",
                    "copyFrom": "workers",
                    "requirements": {"cpu": 8, "memory": "4..", "families": "standard, !cpu"},
                    "labels": {"tier": "general", "example.com/level": 3},
                    "taints": "dedicated=batch:NoSchedule",
                    "maxShare": {"type": "50%", "zone": 40},
                    "deleteEmpty": "true",
                }
            ]
        },
        {"managedPools": [{"name": "a", "provider": "exoscale", "labels": None, "limits": None}]},
        {"nodeLifecycle": None, "spot": None},
        {
            "nodeLifecycle": {
                "maxNodeAge": "720h",
                "jitter": 10,
                "drift": "replace",
                "maxUnhealthy": "20 %",
            }
        },
        {
            "nodeLifecycle": {
                "repair": [{"condition": "Ready", "status": [False, "Unknown"], "after": "30m"}]
            }
        },
        {
            "nodeLifecycle": {
                "repair": [{"condition": "A", "status": True, "after": "1m", "action": "restart"}]
            }
        },
        {
            "nodeLifecycle": {
                "repair": [{"condition": "A", "status": "False, Unknown", "after": "1m"}]
            }
        },
        {
            "spot": {
                "groups": "a",
                "maxShare": "50%",
                "onDemandBase": "2",
                "returnAfter": 0,
                "rebalance": "prefer",
            }
        },
        {
            "prices": {"spot": {"m5.large": "0.035"}},
            "scaleUp": {"expectedCost": True, "learnedTimeouts": "true"},
        },
        {
            "maintenanceWindows": [],
            "webhook": {"secret": "outscaler/prod-geneva/webhook", "debounce": "2s"},
        },
    ],
)
def test_schema_accepts_the_forms_of_values(spec: dict[str, Any]) -> None:
    assert problems(with_spec(**spec).replace("mode: 'off'", "mode: off")) == []


@each_row(
    "spec, place",
    [
        ({"modes": "active"}, "spec"),
        ({"mode": "activ"}, "spec.mode"),
        ({"options": {"maxNodesTotal": -1}}, "spec.options.maxNodesTotal"),
        ({"options": {"maxNodeTotal": 1}}, "spec.options"),
        (
            {"options": {"scaleDownUnneededTime": "10 minutes"}},
            "spec.options.scaleDownUnneededTime",
        ),
        ({"providers": {"aws": {}}}, "spec.providers"),
        ({"providers": {}}, "spec.providers"),
        ({"rules": {"name": "e"}}, "spec.rules"),
        ({"consolidation": {"mode": "all"}}, "spec.consolidation.mode"),
        ({"consolidation": {"maxSurge": "half"}}, "spec.consolidation.maxSurge"),
        ({"disruptionBudgets": [{"name": "a"}]}, "spec.disruptionBudgets.0"),
        ({"disruptionBudgets": [{"name": "a", "nodes": -1}]}, "spec.disruptionBudgets.0.nodes"),
        ({"managedPools": [{"name": "a"}]}, "spec.managedPools.0"),
        (
            {"managedPools": [{"name": "a", "provider": "exoscale", "maxPools": 0}]},
            "spec.managedPools.0.maxPools",
        ),
        ({"prices": {"cpu": 1, "currency": "eur"}}, "spec.prices.currency"),
        ({"prices": {"spot": {"m5.large": "cheap"}}}, "spec.prices.spot.m5.large"),
        ({"nodeLifecycle": {"maxAge": "720h"}}, "spec.nodeLifecycle"),
        ({"nodeLifecycle": {"drift": "replaced"}}, "spec.nodeLifecycle.drift"),
        ({"nodeLifecycle": {"repair": [{"condition": "A"}]}}, "spec.nodeLifecycle.repair.0"),
        (
            {"nodeLifecycle": {"repair": [{"condition": "a b", "after": "1m"}]}},
            "spec.nodeLifecycle.repair.0.condition",
        ),
        ({"spot": {"interruptions": "ignore"}}, "spec.spot.interruptions"),
        ({"spot": {"onDemandBase": -1}}, "spec.spot.onDemandBase"),
    ],
)
def test_schema_refuses_unknown_keys_and_wrong_values(spec: dict[str, Any], place: str) -> None:
    assert [each.partition(":")[0] for each in problems(with_spec(**spec))] == [place]


def test_schema_has_a_description_for_every_key() -> None:
    def keys(form: Any, path: str) -> list[str]:
        found = []
        for key, value in form.get("properties", {}).items():
            found += [f"{path}.{key}"] if not value.get("description") else []
            found += keys(value, f"{path}.{key}")
        return found

    spec = json_schema()["properties"]["spec"]
    assert [each for each in keys(spec, "spec") if not each.startswith("spec.providers.")] == []
