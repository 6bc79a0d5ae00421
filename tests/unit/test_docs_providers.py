"""The pages of Exoscale and Cherry Servers match the code: settings, states,
errors, examples.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from chalicelib.policy.load import load
from chalicelib.policy.settings.cluster_policy import Policy
from chalicelib.policy.vendors import cherryservers as cherry
from chalicelib.policy.vendors import exoscale as exo
from chalicelib.providers.cherryservers import (
    api,
    delete_nodes,
    instances,
    pool_definition,
    scale_up,
    tokens,
)
from chalicelib.providers.cherryservers import decoding as cherry_codes
from chalicelib.providers.cherryservers import instances as cherry_states
from chalicelib.providers.cherryservers.definition_reader import (
    CLOUD_INIT,
    KEYS,
    Definitions,
    read_definitions,
)
from chalicelib.providers.cherryservers.pool_definition import DEFAULT_PATTERN
from chalicelib.providers.exoscale import error_mapping as exo_codes
from chalicelib.providers.exoscale import scale_up as exo_scale_up
from chalicelib.providers.exoscale import zone
from chalicelib.providers.kit import errors
from chalicelib.providers.kit.errors import ProviderError
from chalicelib.providers.kit.http import VendorResponse
from tests.unit.test_docs import ROOT, rows

PAGES = ROOT / "docs" / "providers"
EXO, CHERRY = ROOT / "docs/providers/exoscale.md", ROOT / "docs/providers/cherryservers.md"
COMMON = ROOT / "docs/providers/common.md"
ERRORS = "Error mapping"

each_page = pytest.mark.parametrize("page", [EXO, CHERRY], ids=lambda page: page.stem)


def block(page: Path, kind: str) -> str:
    """The first fenced block of that language."""
    found = re.search(rf"^```{kind}\n(.*?)^```", page.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    assert found is not None
    return found[1]


def policy(page: Path) -> Policy:
    """The policy at the page's head."""
    head = "apiVersion: outscaler.dev/v1\nkind: Cluster\nmetadata: {name: prod}\n"
    return load(
        head + block(page, "yaml").replace("spec:\n", "spec:\n  mode: shadow\n"), place=page.name
    )[0]


def spans(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


# -- examples


def test_docs_exoscale_example_is_valid() -> None:
    given = policy(EXO)
    settings = exo.read_settings(given.providers["exoscale"], given.node_groups)
    assert [(each.name, each.min, each.max, each.priority) for each in settings.groups] == [
        ("web", 0, 10, 0),
        ("prod/gpu", 0, 4, 10),
    ]


def test_docs_cherryservers_example_is_valid() -> None:
    given = policy(CHERRY)
    settings = cherry.read_settings(given.providers["cherryservers"], given.node_groups)
    found = read_definitions(settings, pytest.fail)
    assert isinstance(found, Definitions)
    first, second = found.of("pool1"), found.of("metal")
    assert (first.plan, second.plan, second.region, second.os_partition_size, second.spot) == (
        "amd-ryzen-9950x",
        "e3_1240v3",
        "LT-Siauliai",
        60,
        True,
    )
    assert first.cloudinit == second.cloudinit
    assert pool_definition.needs_token(first)


def test_docs_cherryservers_lists_all_definition_keys() -> None:
    header = "| Key in gcfg; in `nodeGroupDefs` in lowerCamelCase | Meaning |"
    assert header in CHERRY.read_text("utf-8")
    listed = {key: row[1] for row in rows(CHERRY, "Definitions") for key in spans(row[0])}
    assert {key: re.sub("-([a-z])", lambda found: found[1].upper(), key) for key in listed} == KEYS
    assert CLOUD_INIT in spans(listed["cloudinit"])


def test_docs_providers_list_all_node_template_fields() -> None:
    text = CHERRY.read_text("utf-8")
    assert f"`{DEFAULT_PATTERN}`" in text
    assert f"{pool_definition.MOST_BYTES // 1024} KiB filled in" in text
    assert [field for field in pool_definition._SCRIPT_FIELDS if f"`{field}`" not in text] == []


def test_docs_exoscale_lists_what_a_key_with_upstreams_role_lacks() -> None:
    def operations(name: str) -> set[str]:
        role = json.loads((ROOT / "infra" / "exoscale" / f"{name}.json").read_text("utf-8"))
        return set(re.findall(r"'([a-z-]+)'", json.dumps(role)))

    reported = {name for row in rows(EXO, "Permissions") for name in spans(row[0])}
    assert {
        f"infra/exoscale/{path.name}" for path in (ROOT / "infra" / "exoscale").iterdir()
    } == reported
    text = (
        EXO.read_text("utf-8").partition("| Operation that is missing |")[2].partition("\n## ")[0]
    )
    for kind in ("sks", "instance-pool"):
        lacking = operations(f"iam-{kind}") - operations(f"iam-{kind}-as-upstream")
        assert [name for name in sorted(lacking) if f"| `{name}` |" not in text] == []


# -- numbers


_IN_WORDS: dict[float, str] = {3: "three", 5: "five", 10: "ten"}


@pytest.mark.parametrize(
    ("page", "words"),
    [
        (EXO, f"from {exo_scale_up.FOLLOWING.first:g} s to a minute apart"),
        (EXO, f"After about {_IN_WORDS[exo_scale_up.PATIENCE / 60]} minutes of polling"),
        (EXO, f"one by one, at most {zone._MOST_ASKED} per pass"),
        (CHERRY, f"orders up to {scale_up.LOT} machines"),
        (CHERRY, f"Up to {delete_nodes.LOT} are deleted in a step"),
        (CHERRY, f"One scale-up has at most {scale_up.MOST:,} machines"),
        (CHERRY, "after {:g}, {:g}, {:g} and {:g} s".format(*scale_up.WAITS)),
        (
            CHERRY,
            f"ordered again, under the same name, {_IN_WORDS[scale_up.SENT_AGAIN]} times at most",
        ),
        (CHERRY, f"waits up to {api.PATIENCE:g} seconds in total"),
        (CHERRY, f"`bootstrap-token-{tokens.IDS[0]}` to `bootstrap-token-{tokens.IDS[-1]}`"),
        (CHERRY, f"with the label `{tokens.LABEL}`"),
        (
            CHERRY,
            (
                f"from {cherry.SHORTEST_LIFETIME / 60:g} minutes to "
                f"{cherry.LONGEST_LIFETIME / 86400:g} days"
            ),
        ),
        (CHERRY, f"(`{cherry.CONTROLLER_LABELS[0]}`, `…/master`)"),
    ],
)
def test_docs_providers_numbers_equal_the_code(page: Path, words: str) -> None:
    assert words in page.read_text("utf-8")


def test_docs_cherryservers_deleted_servers_are_not_counted_for_an_hour() -> None:
    assert instances.KEPT == 3600
    assert "Servers deleted within the last hour do not count" in CHERRY.read_text("utf-8")


# -- states


def test_docs_exoscale_lists_all_states() -> None:
    text = EXO.read_text("utf-8").partition("### States\n")[2].partition("\n### ")[0]
    machines, _, pools = text.partition("| Pool or Nodepool |")
    listed = {
        word for line in re.findall(r"^\| (.*?) \|", machines, re.MULTILINE) for word in spans(line)
    }
    assert listed == set(zone.INSTANCE_STATES)
    reported = {
        word for line in re.findall(r"^\| (.*?) \|", pools, re.MULTILINE) for word in spans(line)
    }
    assert reported == zone.POOL_BUSY | zone.NODEPOOL_BUSY | {zone.SUSPENDED}


def test_docs_cherryservers_lists_all_states() -> None:
    listed = {word for row in rows(CHERRY, "States") for word in spans(row[0])}
    assert listed == {word for row in cherry_states._ROWS for word in row[:2]} - {""}


# -- errors


def classes(page: Path) -> dict[str, list[str]]:
    """Class -> the answers that map to it, on the vendor's page and on the common one."""
    found: dict[str, list[str]] = {}
    for row in (*rows(page, ERRORS), *rows(COMMON, "Errors")):
        found.setdefault(row[1], []).append(row[0])
    return found


def statuses(table: list[list[str]]) -> set[tuple[int, str]]:
    """Every status in it, with its class."""
    return {
        (int(status), row[1]) for row in table for status in re.findall(r"\b[2-5]\d\d\b", row[0])
    }


def test_docs_common_status_mapping_equals_the_code() -> None:
    assert statuses(rows(COMMON, "Errors")) == {
        (status, cls.__name__) for status, cls in errors._BY_STATUS.items()
    }


@each_page
def test_docs_providers_list_every_error_class(page: Path) -> None:
    assert set(classes(page)) == {error.__name__ for error in errors.ProviderError.__subclasses__()}


def test_docs_exoscale_operation_failure_mapping_equals_the_code() -> None:
    reported = {
        name: cls
        for cls, answers in classes(EXO).items()
        for answer in answers
        for name in spans(answer)
    }
    assert {reason: reported.get(reason) for reason in exo_codes.REASONS} == {
        reason: cls.__name__ for reason, cls in exo_codes.REASONS.items()
    }


@pytest.mark.parametrize(
    ("page", "explain", "changing"),
    [(EXO, exo_codes.error_for, "PUT"), (CHERRY, cherry_codes.error_for, "POST")],
    ids=["exoscale", "cherryservers"],
)
def test_docs_providers_status_mapping_equals_the_code(
    page: Path, explain: Callable[[VendorResponse], ProviderError], changing: str
) -> None:
    wrong = []
    own = statuses(rows(page, ERRORS))
    for status, cls in own | statuses(rows(COMMON, "Errors")):
        words = b'{"message": "no such plan"}' if cls == "OutOfStock" else b"{}"
        made = {
            explain(VendorResponse(f"{method} h/p", status, {}, words)).error_class
            for method in ("GET", changing)
        }
        if cls not in made and not {(status, each) for each in made} <= own:
            wrong.append((status, cls, made))
    assert wrong == []


@pytest.mark.parametrize("word", ["credit", "balance", "funds", "quota", "limit"])
def test_docs_cherryservers_credit_error_words_are_recognized_and_listed(word: str) -> None:
    [answer] = classes(CHERRY)["QuotaExceeded"]
    assert word in answer
    reported = f'{{"message": "not enough {word}"}}'.encode()
    assert (
        cherry_codes.error_for(VendorResponse("POST h/p", 400, {}, reported)).error_class
        == "QuotaExceeded"
    )
