"""Names of the node requirement that keeps a pod off a node."""

from __future__ import annotations

from chalicelib.model.pod import PodClass
from chalicelib.model.selector import NodeTerm, Requirement
from chalicelib.plan.predicates import unmet_requirement
from tests.cases import each_row

ZONES = Requirement("zone", "In", ("a", "b"))
MANY = Requirement("zone", "NotIn", tuple("abcdefg"))


@each_row(
    ("selector", "terms", "named"),
    [
        ({"gen": "2"}, None, "gen=2: has 1"),
        ({"pool": "x"}, None, "pool=x: has no such label"),
        ({"empty": "x"}, None, "empty=x: has an empty value"),
        ({}, (NodeTerm((ZONES,)),), "zone In a,b: has c"),
        ({}, (NodeTerm((Requirement("gpu", "Exists"),)),), "gpu Exists: has no such label"),
        (
            {"gen": "1"},
            (NodeTerm((ZONES,)), NodeTerm((MANY,))),
            "zone In a,b: has c (first of 2 terms)",
        ),
        ({}, (NodeTerm((MANY,)),), "zone NotIn a,b,c,d,e,…: has c"),
        (
            {},
            (NodeTerm((), (Requirement("metadata.name", "In", ("m",)),)),),
            "metadata.name In m: has n",
        ),
        ({}, (NodeTerm(),), "an empty term matches nothing"),
    ],
)
def test_unmet_node_requirement_is_named_with_the_value_of_the_node(
    selector: dict[str, str], terms: tuple[NodeTerm, ...] | None, named: str
) -> None:
    pod = PodClass("shop", {}, {}, node_selector=selector, required_affinity=terms)
    assert unmet_requirement(pod, "n", {"gen": "1", "zone": "c", "empty": ""}) == named
