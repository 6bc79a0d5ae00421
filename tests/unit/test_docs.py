"""The documents match the code: links, paths, commands, targets, tables and the
worked examples in them.

Prose cannot be tested, but the names in it can: a name that no longer exists
makes its sentence wrong.
"""

from __future__ import annotations

import importlib
import importlib.util
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from shutil import which

import pytest

from chalicelib.cluster.listed_resources import RESOURCES
from chalicelib.functions.webhook import MAX_BODY, MAX_GAPS
from chalicelib.functions.webhook_events import is_relevant, parse
from chalicelib.model.memory import Backoff
from chalicelib.model.reason import Reason, ReasonCode
from chalicelib.operations.executor import CLAIM
from chalicelib.operations.stuck import RULES as SWEEPING
from chalicelib.passes.lease_renewal import LEASE_FOR, LONGEST_PASS, RENEW_EVERY
from chalicelib.passes.reconciler import DECIDED_WITHIN
from chalicelib.passes.scan_scheduler import LOST_AFTER
from chalicelib.plan import predicates
from chalicelib.plan.removal import drain_rules
from chalicelib.plan.scale_up.expanders import EXPANDERS, LEAST_COST, RANDOM, preferred_cores
from chalicelib.plan.scale_up.placement import planned_nodes
from chalicelib.plan.state import backoff
from chalicelib.policy.option_tables import Status
from chalicelib.policy.options import ROWS
from chalicelib.policy.settings.cluster_options import AVAILABLE_EXPANDERS, Options
from chalicelib.policy.settings.cluster_policy import Policy
from chalicelib.policy.settings.mode import Mode
from chalicelib.providers.kit import errors
from chalicelib.reasons.text import text
from chalicelib.runtime.mode_guard import permitted
from chalicelib.runtime.webhook_authentication import AuthResult, WebhookKeys, verify
from tests.builders import cluster

ROOT = Path(__file__).resolve().parents[2]
DOCS = sorted(
    [
        *ROOT.glob("*.md"),
        *(ROOT / ".github").rglob("*.md"),
        *(ROOT / "docs").rglob("*.md"),
        *(ROOT / "infra").rglob("*.md"),
    ]
)

each_document = pytest.mark.parametrize(
    "document", DOCS, ids=lambda path: path.relative_to(ROOT).as_posix()
)

_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
FENCE = re.compile(r"^ *```.*?\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
#: A block without a fence: a line of code is indented by four columns.
_INDENTED = re.compile(
    r"^ {4,}((?:make|outscaler|python|aws|kubectl|git|(?:\.venv/bin/)\S+) .*)", re.MULTILINE
)
SPAN = re.compile(r"`([^`\n]+)`")
_PATH = re.compile(r"(?:chalicelib|infra|tests|docs|\.chalice|\.ci)/[\w./-]*\w")


def prose(document: Path) -> str:
    """The text without fenced blocks."""
    return FENCE.sub("", document.read_text("utf-8"))


def code(document: Path) -> list[str]:
    """Every line of code in it: lines of blocks, and inline code."""
    return block_lines(document) + SPAN.findall(prose(document))


def block_lines(document: Path) -> list[str]:
    r"""The lines of its fenced and of its indented blocks; a `\` joins two."""
    text = document.read_text("utf-8")
    lines = [
        line for block in FENCE.findall(text) for line in block.replace("\\\n", " ").splitlines()
    ]
    return lines + _INDENTED.findall(FENCE.sub("", text))


def anchors(document: Path) -> set[str]:
    """The anchors that GitHub generates from the headings, and those that
    the page has of its own."""
    headings = re.findall(r"^#+ (.+)$", prose(document), re.MULTILINE)
    own = set(re.findall(r'<a id="([a-z0-9-]+)"></a>', prose(document)))
    return own | {
        re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings
    }


@each_document
def test_docs_links_resolve(document: Path) -> None:
    lost = []
    for link in _LINK.findall(prose(document)):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (document.parent / path).resolve() if path else document
        if not target.exists() or (anchor and anchor not in anchors(target)):
            lost.append(link)
    assert lost == []


@each_document
def test_docs_named_paths_exist(document: Path) -> None:
    named = {
        path
        for line in code(document)
        for path in _PATH.findall(line)
        if "*" not in line and "<" not in line
    }
    assert sorted(path for path in named if not (ROOT / path).exists()) == []


@each_document
def test_docs_make_targets_exist(document: Path) -> None:
    known = set(re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = {
        name
        for line in code(document)
        for name in re.findall(r"(?:^|[\s;&])make ([a-z][a-z-]*)", line)
    }
    assert named - known == set()


@each_document
def test_docs_python_modules_exist_and_know_their_flags(document: Path) -> None:
    for line in code(document):
        for module, arguments in re.findall(
            r"python -m ((?:chalicelib|infra|tests)[\w.]*)([^`|>;&]*)", line
        ):
            spec = importlib.util.find_spec(module)
            if spec is not None and spec.submodule_search_locations is not None:
                spec = importlib.util.find_spec(f"{module}.__main__")
            assert spec is not None, module
            assert spec.origin is not None, module
            if module.startswith("chalicelib"):
                continue  # `outscaler` by another name
            flags = {
                word.partition("=")[0]
                for word in arguments.split()
                if word.startswith("-") and word != "--"
            }
            source = Path(spec.origin).read_text("utf-8")
            assert {flag for flag in flags if f'"{flag}"' not in source} == set(), module


# -- tables


_IN_WORDS = {9: "Nine", 15: "Fifteen", 16: "Sixteen"}


def rows(document: Path, heading: str) -> list[list[str]]:
    """The cells of the first table under a heading, without its header."""
    text = document.read_text("utf-8").partition(f"# {heading}\n")[2]
    assert text, f"{document.name} has no heading {heading!r}"
    lines = re.search(r"(?:^\|.*\n)+", text, re.MULTILINE)
    assert lines is not None
    return [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in lines.group().strip().splitlines()[2:]
    ]


RUNBOOK, EVENTS = (ROOT / "docs" / name for name in ("runbook.md", "events.md"))
RULES = ROOT / "docs" / "reference"
(
    SCALE_UP,
    SCHEDULING,
    EXPANDERS_PAGE,
    NODE_GROUPS,
    SCALE_DOWN,
    DRAIN,
    HEADROOM,
    SCHEDULES,
    SCALING_RULES,
) = (
    RULES / f"{name}.md"
    for name in (
        "scale-up",
        "scheduling",
        "expanders",
        "node-groups",
        "scale-down",
        "drain",
        "headroom",
        "schedules",
        "scaling-rules",
    )
)


def test_docs_drain_rules_are_listed_in_code_order() -> None:
    assert [row[1].strip("`") for row in rows(DRAIN, "Drain rules")] == [
        name for name, _ in drain_rules.RULES
    ]


# The predicates for volumes and for other pods have no table in the code: they follow the table of
# predicates, in the scheduler's order, which test_docs_scale_up.py exercises.
_AFTER = (
    "VolumeRestrictions",
    "NodeVolumeLimits",
    "VolumeBinding",
    "VolumeZone",
    "PodTopologySpread",
    "InterPodAffinity",
)
_CODES = list(ReasonCode)
_FILTERS = _CODES[: _CODES.index(ReasonCode.GROUP_UNHEALTHY)]  # why a pod does not fit a node
_TOLD = re.compile(r"`(\w+)`: ([^;…]+)")


def test_docs_predicates_are_listed_in_code_order() -> None:
    names = [row[1].strip("`") for row in rows(SCHEDULING, "Predicates")]
    assert names == [*(name for name, _, _ in predicates.TABLE), *_AFTER]


def test_docs_predicate_reasons_equal_the_code() -> None:
    reported = {
        code: words.strip()
        for row in rows(SCHEDULING, "Predicates")
        for code, words in _TOLD.findall(row[2])
    }
    assert reported == {
        code: text(Reason.of(ReasonCode(code), resource="cpu")) for code in reported
    }


def test_docs_every_filter_reason_belongs_to_a_predicate_or_blocks_all_nodes() -> None:
    of_predicates = [
        code for row in rows(SCHEDULING, "Predicates") for code, _ in _TOLD.findall(row[2])
    ]
    everywhere = [code for row in _everywhere() for code in re.findall(r"`(\w+)`", row[0])]
    assert sorted(of_predicates + everywhere) == sorted(
        code.value for code in _FILTERS if code is not ReasonCode.NODE_NAME
    )


def _everywhere() -> list[list[str]]:
    """The table of reasons that exclude a pod from every node; it has no heading of its own."""
    section = (
        SCHEDULING.read_text("utf-8")
        .partition("exclude a pod from every node")[2]
        .partition("\n## ")[0]
    )
    return [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in re.findall(r"^\|.*$", section, re.MULTILINE)[2:]
    ]


def test_docs_list_all_expanders() -> None:
    listed = {row[0].strip("`") for row in rows(EXPANDERS_PAGE, "Chain")}
    assert listed == {*EXPANDERS, RANDOM, LEAST_COST} == set(AVAILABLE_EXPANDERS)


def test_docs_preferred_sizes_equal_the_code() -> None:
    text = EXPANDERS_PAGE.read_text("utf-8").partition("## price\n")[2].partition("\n## ")[0]
    head, _, cores = (
        [cell.strip() for cell in line.strip("|").split("|")][1:]
        for line in re.findall(r"^\|.*$", text, re.MULTILINE)
    )
    assert [preferred_cores(int(nodes)) for nodes in head[:-1]] == [
        int(each) for each in cores[:-1]
    ]
    assert [preferred_cores(int(nodes) + 1) for nodes in head[:-1]] == [
        int(each) for each in cores[1:]
    ]


def test_docs_list_all_error_classes() -> None:
    classes = {error.__name__ for error in errors.ProviderError.__subclasses__()}
    assert {row[0].strip("`") for row in rows(NODE_GROUPS, "Error classes")} == classes


def test_docs_sweeper_rules_are_listed_in_code_order() -> None:
    assert [row[0] for row in rows(RUNBOOK, "Stuck operations")] == [why for why, _ in SWEEPING]


def test_docs_list_every_time_limit_of_a_scale_up() -> None:
    listed = {row[0].strip("`") for row in rows(SCALE_UP, "Time limits")}
    assert listed == {
        row.name
        for row in ROWS.values()
        if row.status is Status.IN_FORCE
        and re.fullmatch(r".*(binpacking|batching)-(duration|time|timeout)", row.flag)
    }


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ("architecture.md", f"{LEASE_FOR:.0f} seconds; the function times out after 120."),
        ("architecture.md", f"expires {LOST_AFTER:.0f} seconds after its last slot"),
        ("architecture.md", f"an executor holds the claim, for {CLAIM:.0f} seconds"),
        ("architecture.md", f"every {RENEW_EVERY:.0f} seconds while the pass"),
        ("architecture.md", f"for {LONGEST_PASS:.0f} seconds at most"),
        (
            "limits.md",
            f"the lease lasts {LEASE_FOR:.0f} s, and is renewed every {RENEW_EVERY:.0f} s",
        ),
        ("limits.md", f"| {MAX_BODY // 1024} KiB, otherwise 413 |"),
        ("runbook.md", f"holds its lease for up to {LEASE_FOR:.0f} s"),
        ("concepts.md", f"to be its executor for {CLAIM:.0f} seconds"),
        ("events.md", f"(the first {MAX_GAPS}; `unread`"),
        (
            "reference/scale-up.md",
            f"a pass stops searching {DECIDED_WITHIN:.0f} seconds after its start",
        ),
        ("limits.md", f"of which {DECIDED_WITHIN:.0f} s until it stops searching"),
        ("architecture.md", f"{DECIDED_WITHIN:.0f} seconds after its start a pass stops searching"),
        ("reference/scale-up.md", f"(runs + 1) ≤ {planned_nodes._EXACT:,}"),
        ("limits.md", f"(runs + 1) ≤ {planned_nodes._EXACT:,}"),
        (
            "architecture.md",
            f"{_IN_WORDS[len(RESOURCES)]} lists and one ConfigMap are read from the cluster",
        ),
        ("limits.md", f"{_IN_WORDS[len(RESOURCES)]} lists from the API server"),
    ],
)
def test_docs_constants_equal_the_code(document: str, words: str) -> None:
    assert words in " ".join((ROOT / "docs" / document).read_text("utf-8").split())


def test_docs_every_read_kind_is_listed_as_a_gap_or_required() -> None:
    listed = {kind for row in rows(RUNBOOK, "Gaps") for kind in re.findall(r"`(\w+)`", row[0])}
    controllers = {"ReplicaSet", "StatefulSet", "Job", "ReplicationController"}  # "a kind such as"
    assert {each.kind for each in RESOURCES if not each.required} - controllers <= listed


# -- worked examples of docs/reference; those of scale-up are in test_docs_scale_up.py


def test_docs_utilization_example_equals_the_planner() -> None:
    build = cluster().node("n1", "4", "16Gi", group="g").node("n2", "4", "16Gi", group="g")
    build.running("n1", 1, "1500m", "9Gi").running("n2", 1, "3", "2Gi").group("g")
    verdict = next(verdict for verdict in build.plan().unremovable if verdict.node == "n1")
    assert verdict.reason.params == {"resource": "memory", "utilization": 0.5625, "threshold": 0.5}


def test_docs_backoff_example_equals_the_planner() -> None:
    options, shown = Options(), rows(NODE_GROUPS, "Example of a backoff")
    assert shown
    record: Backoff | None = None
    for _, at, length, until in shown:
        now = float(at.removesuffix(" min")) * 60
        record = backoff.fail(record, now, options)
        assert (f"{record.duration / 60:.0f} min", f"{record.until / 60:.0f} min") == (
            length,
            until,
        )


def test_docs_examples_of_user_tests_run() -> None:
    text = (ROOT / "docs" / "local.md").read_text("utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    assert len(blocks) == 3
    for block in blocks:
        names: dict[str, Callable[[], None]] = {}
        exec(block, names)  # our own documents
        for name in [name for name in names if name.startswith("test_")]:
            names[name]()


@pytest.mark.skipif(
    not (which("openssl") and which("sh")), reason="the recipe needs sh and openssl"
)
def test_docs_signature_recipe_is_correct() -> None:
    text = EVENTS.read_text("utf-8").partition("## Signed requests")[2]
    recipe = re.search(r"^```sh\n(.*?)^curl", text, re.MULTILINE | re.DOTALL)
    assert recipe is not None
    script = recipe.group(1) + 'printf "%s\\n%s\\n%s" "$now" "$signature" "$body"'
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True)
    now, signature, body = done.stdout.split("\n", 2)
    key = b'the value of "hmac"'
    headers = {"x-outscaler-timestamp": now, "x-outscaler-signature": f"v2={signature}"}
    authenticated = verify(
        "prod", headers, body.encode(), WebhookKeys(hmac=(key,)), b"decoy", float(now)
    )
    assert authenticated.verdict is AuthResult.ACCEPTED
    [signal] = parse(body.encode()).signals
    assert is_relevant(signal, ())


def test_docs_runbook_describes_the_modes_correctly() -> None:
    said = {row[0].strip("`"): (row[1], row[2]) for row in rows(RUNBOOK, "Disabling Outscaler")}
    meant = {mode.value: permitted(Policy(name="shop", mode=mode)) for mode in Mode}
    assert said == {
        name: ("yes" if one.plan else "no", "yes" if one.act else "no")
        for name, one in meant.items()
    }
