"""The page of Huawei Cloud CCE matches the code, and its examples of rules,
schedules and headroom are valid.
"""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from chalicelib.cli.migrate.cce_policy import read_addon
from chalicelib.model.node import SCALE_DOWN_DISABLED
from chalicelib.model.resources import CPU, MEMORY, PODS
from chalicelib.policy.load import load
from chalicelib.policy.settings.cluster_policy import Policy
from chalicelib.policy.vendors import huaweicloud as settings
from chalicelib.providers.huaweicloud import (
    credentials,
    error_mapping,
    models,
    node_groups,
    scale_up,
)
from chalicelib.providers.huaweicloud.models import Flavor
from chalicelib.providers.huaweicloud.node_template import UNPROMISED, allocatable
from chalicelib.providers.kit import errors
from chalicelib.providers.kit.http import VendorResponse
from tests.unit.test_docs import ROOT, rows
from tests.unit.test_docs_providers import (
    _IN_WORDS,
    PAGES,
    classes,
    policy,
    spans,
)

PAGE = PAGES.parent.parent / "docs/providers/huaweicloud.md"
TEXT = PAGE.read_text("utf-8")
README = ROOT / "README.md"
HEAD = "apiVersion: outscaler.dev/v1\nkind: Cluster\nmetadata: {name: prod}\nspec:\n"


def table(heading: str) -> list[list[str]]:
    """The cells of the table whose header begins with these words, without its header."""
    found = TEXT.partition(f"| {heading} |")[2].partition("\n\n")[0]
    assert found, heading
    return [
        [cell.strip() for cell in line.strip("|").split("|")] for line in found.splitlines()[2:]
    ]


# -- examples, permissions


def test_docs_huaweicloud_example_is_valid() -> None:
    given = policy(PAGE)
    read = settings.read_settings(given.providers["huaweicloud"], given.node_groups)
    assert [(each.name, each.min, each.max, each.priority) for each in read.groups] == [
        ("web", 0, 10, 0),
        ("batch/default", 0, 4, 10),
    ]
    assert given.options.expander == ("priority", "least-waste")


def test_docs_huaweicloud_names_all_permission_files_and_optional_actions() -> None:
    reported = {name for row in rows(PAGE, "Permissions") for name in spans(row[0])}
    assert reported == {
        f"infra/huaweicloud/{path.name}" for path in (ROOT / "infra" / "huaweicloud").iterdir()
    }
    allowed = json.loads((ROOT / "infra" / "huaweicloud" / "policy.json").read_text("utf-8"))[
        "Statement"
    ]
    spared = {name for row in table("Action that is missing | Effect") for name in spans(row[0])}
    assert len(spared) == 5
    assert spared <= {action for each in allowed for action in each["Action"]}


@pytest.mark.parametrize(
    "words",
    [
        f"from {settings.SHORTEST} to {settings.LONGEST} seconds",
        f"renewed {_IN_WORDS[credentials.EARLY / 60]} minutes before their expiry",
        f"from {scale_up.FOLLOWING.first:g} s to a minute apart",
        f"listed for about {_IN_WORDS[scale_up.UNSEEN / 60]} minutes the scale-up",
        f"`{SCALE_DOWN_DISABLED}=true`",
    ],
)
def test_docs_huaweicloud_numbers_equal_the_code(words: str) -> None:
    assert words in TEXT


def test_docs_huaweicloud_node_template_example_equals_the_code() -> None:
    left = allocatable(Flavor("c7.xlarge.2", 4, 8192), {}, "containerd")
    assert left == {CPU: 3920, MEMORY: 6792 * 2**20, PODS: 40}
    assert "leaves 3920m, 6792 MiB and 40 pods" in TEXT
    assert [label for label in UNPROMISED if f"`{label}`" not in TEXT] == []


# -- states


def test_docs_huaweicloud_lists_all_node_phases() -> None:
    listed = {word for row in rows(PAGE, "States") for word in spans(row[0])}
    assert listed == set(models.NODE_STATES)


def test_docs_huaweicloud_lists_all_scale_group_conditions() -> None:
    listed = {
        word: row[1]
        for row in table("Condition of a scale group | Class, if nodes are missing")
        for word in spans(row[0])
    }
    assert {kind: listed[kind].split(":")[0] for kind, _, _ in models._CAUSES} == {
        kind: cls.__name__ for kind, cls, _ in models._CAUSES
    }
    assert set(listed) == {kind for kind, _, _ in models._CAUSES} | {models.SCALABLE}


def test_docs_huaweicloud_lists_all_cluster_phases() -> None:
    reported = TEXT.partition("The cluster takes changes in the phases")[2].partition("A pool")[0]
    assert set(spans(reported)) == models._READY | models._OVER


def test_docs_huaweicloud_lists_all_switches_of_the_vendors_autoscaler() -> None:
    reported = TEXT.partition("## Coexistence with the vendor's autoscaler")[2].partition("\n\n**")[
        0
    ]
    assert set(node_groups.SWITCHES) <= set(spans(reported))


# -- errors


def test_docs_huaweicloud_lists_every_error_class() -> None:
    assert set(classes(PAGE)) == {error.__name__ for error in errors.ProviderError.__subclasses__()}


def _answer(method: str, status: int, code: str = "") -> str:
    body = json.dumps({"errorCode": code, "errorMessage": "no"}).encode() if code else b"{}"
    return error_mapping.error_for(VendorResponse(f"{method} h/p", status, {}, body)).error_class


def test_docs_huaweicloud_status_mapping_equals_the_code() -> None:
    wrong = [
        (status, cls)
        for cls, answers in classes(PAGE).items()
        for answer in answers
        for status in {int(each) for each in re.findall(r"(?<![.\d])\b[2-5]\d\d\b", answer)}
        if _answer("POST", status) != cls
    ]
    assert wrong == []


def test_docs_huaweicloud_code_mapping_equals_the_code() -> None:
    reported = {
        (cls, code)
        for cls, answers in classes(PAGE).items()
        for answer in answers
        for code in spans(answer)
        if re.match(r"(CCE|APIGW|Ecs)\.", code)
    }
    meant = {
        (cls.__name__, code) for cls, listed in error_mapping._TABLE for code in listed.split()
    }
    # `APIGW.0301` to `APIGW.0307`, and so on
    within = {("Unauthorized", f"APIGW.030{number}") for number in range(2, 7)}
    within |= {("InvalidRequest", f"APIGW.010{number}") for number in range(2, 4)}
    within |= {("QuotaExceeded", f"CCE.014000{number:02}") for number in range(9, 13)}
    locked = {("Throttled", error_mapping.LOCKED)}
    assert reported == meant - within | locked
    assert [_answer(method, 429, error_mapping.LOCKED) for method in ("GET", "POST")] == [
        "Throttled",
        "Conflict",
    ]


# -- migration from the vendor's autoscaler; rules, schedules, headroom


def test_docs_huaweicloud_import_output_equals_the_page() -> None:
    read = read_addon({}, "addons.json").options
    assert (read.scale_down_enabled, read.scale_down_delay_after_delete) == (False, 600.0)
    reported = {row[1] for row in table("Add-on | Here")}
    assert "on; `outscaler import` writes `scaleDownEnabled: false`" in reported
    assert "none by default, as upstream; `outscaler import` writes `10m`" in reported


def _examples() -> dict[str, Any]:
    """The README's policies that concern scale-up without pending pods."""
    found = [
        text
        for text in re.findall(
            r"^```yaml\n(.*?)^```", README.read_text("utf-8"), re.MULTILINE | re.DOTALL
        )
        if "rules:" in text
    ]
    assert len(found) == 1
    base = (
        "  mode: shadow\n  kubernetes: {kubeconfigSecret: k}\n  providers:\n    clusterapi: "
        "{clusterName: prod}\n"
    )
    given: Policy = load(HEAD + base + found[0], place="README.md")[0]
    return {"rules": given.rules, "schedules": given.schedules, "headroom": given.headroom}


def test_docs_readme_examples_are_valid() -> None:
    given = _examples()
    assert [rule.name for rule in given["rules"]] == ["evening", "busy"]
    assert [schedule.name for schedule in given["schedules"]] == ["night", "weekend"]
    assert [headroom.name for headroom in given["headroom"]] == ["spare", "tenth"]
