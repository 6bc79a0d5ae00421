"""spec.headroom: pods of a size, or a percentage; one amount per scope."""

from __future__ import annotations

from chalicelib.policy.load import load
from chalicelib.policy.settings.headroom import Headroom
from tests.cases import each_row
from tests.unit.policy.policy_documents import with_spec
from tests.unit.policy.refused_documents import Case
from tests.unit.policy.test_policy_refusals import refusals


def document(*entries: str) -> str:
    """A document with these entries; the first is in line 10."""
    return with_spec("headroom:\n" + "\n".join(f"- {{{entry}}}" for entry in entries))


@each_row(
    ("given", "entry"),
    [
        (
            "name: spare, groups: [w, v], pods: 3, cpu: 500m, memory: 1Gi",
            Headroom("spare", ("w", "v"), 3, 500, 2**30),
        ),
        ("name: cores, pods: 1, cpu: 2", Headroom("cores", pods=1, cpu=2000)),
        ("name: bytes, pods: 1, memory: 1500M", Headroom("bytes", pods=1, memory=1_500_000_000)),
        ("name: tenth, percent: 10", Headroom("tenth", percent=10)),
        ("name: tenth, percent: 10%", Headroom("tenth", percent=10)),
        ("name: tenfold, percent: 1000 %", Headroom("tenfold", percent=1000)),
    ],
)
def test_policy_headroom_is_parsed(given: str, entry: Headroom) -> None:
    policy, reported = load(document(given), place="p.yaml")
    assert (policy.headroom, reported) == ((entry,), ())


ENTRY = "p.yaml:10: spec.headroom[0]"
WRONG: list[Case] = [
    (with_spec("headroom: 10%"), "p.yaml:9: spec.headroom", "is not a list", "- {name: spare"),
    (
        with_spec("headroom: {spare: {percent: 10}}"),
        "p.yaml:9: spec.headroom",
        "is not a list",
        "- {name: spare",
    ),
    (document("percent: 10"), f"{ENTRY}.name", "is missing", "name: NAME"),
    (
        document("name: a"),
        ENTRY,
        "does not say how much",
        "add pods with cpu and memory, or percent",
    ),
    (
        document("name: a, pods: 3"),
        ENTRY,
        "does not say how large a pod is",
        "add cpu: 500m, memory: 1Gi",
    ),
    (document("name: a, cpu: 1"), f"{ENTRY}.pods", "is missing", "add pods: 1"),
    (
        document("name: a, percent: 10, pods: 3, cpu: 1"),
        f"{ENTRY}.pods",
        "is a percentage already",
        "keep percent, or",
    ),
    (
        document("name: a, percent: 10, memory: 1Gi"),
        f"{ENTRY}.memory",
        "is a percentage already",
        "or memory",
    ),
    (document("name: a, percent: 0"), f"{ENTRY}.percent", "out of range", "from 1% to 1000%"),
    (document("name: a, percent: 1001"), f"{ENTRY}.percent", "out of range", "from 1% to 1000%"),
    (
        document("name: a, percent: 0.1"),
        f"{ENTRY}.percent",
        "not a whole percentage",
        "from 1% to 1000%",
    ),
    (document("name: a, pods: 0, cpu: 1"), f"{ENTRY}.pods", "out of range", "from 1 to 5000"),
    (document("name: a, pods: 1, cpu: 0"), f"{ENTRY}.cpu", "out of range", "up to 1000"),
    (document("name: a, pods: 1, cpu: 1001"), f"{ENTRY}.cpu", "out of range", "up to 1000"),
    (document("name: a, pods: 1, cpu: -1"), f"{ENTRY}.cpu", "is negative", "such as 500m"),
    (document("name: a, pods: 1, memory: 65Ti"), f"{ENTRY}.memory", "out of range", "up to 64Ti"),
    (
        document("name: a, pods: 1, memory: 1GB"),
        f"{ENTRY}.memory",
        "not a Kubernetes quantity",
        "such as 1Gi",
    ),
    (
        document("name: a, percent: 5, groups: []"),
        f"{ENTRY}.groups",
        "names no group",
        "take the line out",
    ),
    (
        document("name: a, percent: 5", "name: a, percent: 6, groups: [w]"),
        "p.yaml:11: spec.headroom[1].name",
        "a is already headroom[0]",
        "once",
    ),
    (
        document("name: a, percent: 5", "name: b, pods: 1, cpu: 1"),
        "p.yaml:11: spec.headroom[1]",
        "the cluster has headroom already: headroom[0]",
        "add the two up",
    ),
    (
        document("name: a, percent: 5, groups: [v, w]", "name: b, percent: 6, groups: [w]"),
        "p.yaml:11: spec.headroom[1].groups",
        "w has headroom already: headroom[0]",
        "keep one entry",
    ),
]


@each_row(("text", "place", "problem", "remedy"), WRONG)
def test_policy_headroom_errors_name_their_position(
    text: str, place: str, problem: str, remedy: str
) -> None:
    (reported,) = refusals(text)
    assert reported.startswith(f"{place}: ")
    assert problem in reported
    assert remedy in reported
    assert "\n" not in reported


def test_policy_headroom_of_groups_and_the_cluster_is_separate() -> None:
    text = document(
        "name: a, percent: 5",
        "name: b, percent: 5, groups: [v]",
        "name: c, percent: 5, groups: [w]",
    )
    assert len(load(text, place="p.yaml")[0].headroom) == 3


def test_policy_headroom_error_is_reported_once() -> None:
    reported = refusals(
        document(
            "name: a, pods: many, cpu: 1", "name: b, percent: 5, groups: {}", "name: c, percent: 5"
        )
    )
    assert [line.partition(";")[0] for line in reported] == [
        "p.yaml:10: spec.headroom[0].pods: 'many' is not a whole number",
        "p.yaml:11: spec.headroom[1].groups: is a mapping",
        "p.yaml:12: spec.headroom[2]: the cluster has headroom already: headroom[0]",
    ]
