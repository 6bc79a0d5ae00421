"""The priority expander's ConfigMap, parsed as upstream parses it, and the report of its errors."""

from __future__ import annotations

from chalicelib.policy.priority_configmap import MOST_RULES, Rules, read
from tests.cases import each_row


@each_row(
    ("text", "rules"),
    [
        (
            "10:\n  - .*t2\\.large.*\n50:\n  - .*m4\\.4xlarge.*\n  - b\n",
            ((50, (".*m4\\.4xlarge.*", "b")), (10, (".*t2\\.large.*",))),
        ),
        ("-5: [a]\n+7: ['b']\n0: [c]", ((7, ("b",)), (0, ("c",)), (-5, ("a",)))),
        ("1: [12, true, 1.5]", ((1, ("12", "true", "1.5")),)),
        ("1: [a]\n1: [b]", ((1, ("b",)),)),
        ("1:\n2: []", ((2, ()), (1, ()))),
        ("{}", ()),
        ("~", ()),
        ("# nothing yet\n\n", ()),
    ],
    ids=[
        "usual",
        "signs",
        "scalars-are-text",
        "the-last-of-two",
        "no-patterns",
        "empty-mapping",
        "null",
        "comments",
    ],
)
def test_priority_config_map_rules_are_sorted_highest_first(text: str, rules: Rules) -> None:
    config = read({"priorities": text, "other": "is not looked at"})
    assert (config.text, config.rules, config.problem) == (text, rules, "")


@each_row(
    ("data", "problem"),
    [
        (None, "the ConfigMap has no key priorities"),
        ({"prioritys": "1: [a]"}, "the ConfigMap has no key priorities"),
        ({"priorities": ""}, "priorities: is empty"),
        (
            {"priorities": "5: [a]\nhigh: [b]"},
            "priorities:2: the priority 'high' is not a whole number",
        ),
        ({"priorities": "1.5: [a]"}, "priorities:1: the priority '1.5' is not a whole number"),
        ({"priorities": "'1': [a]"}, "priorities:1: the priority '1' is not a whole number"),
        ({"priorities": "010: [a]"}, "priorities:1: the priority '010' is not a whole number"),
        ({"priorities": "5: a"}, "priorities:1: a priority's patterns are not a list"),
        ({"priorities": "5: {a: b}"}, "priorities:1: a priority's patterns are not a list"),
        ({"priorities": "5: [[a]]"}, "priorities:1: a pattern is not text"),
        ({"priorities": "5:\n- a\n-\n"}, "priorities:3: a pattern is not text"),
        ({"priorities": "5:\n- a\n- '('\n"}, "priorities:3: the pattern '(': missing ): ("),
        (
            {"priorities": "5: ['(?!spot)']"},
            "priorities:1: the pattern '(?!spot)': invalid perl operator: (?!",
        ),
        (
            {"priorities": "- a"},
            "priorities:1: is not a mapping of priorities to lists of patterns",
        ),
        ({"priorities": "5: [a"}, "priorities:1: not YAML"),
        ({"priorities": "5: [a]\n---\n6: [b]"}, "a second document begins here"),
        (
            {"priorities": f"1: [{'a,' * (MOST_RULES + 1)}]"},
            f"priorities: has more than {MOST_RULES} patterns",
        ),
    ],
    ids=lambda value: str(value)[:30],
)
def test_priority_config_map_with_an_error_has_no_rules_and_names_it(
    data: dict[str, str] | None, problem: str
) -> None:
    config = read(data)
    assert config.rules == ()
    assert problem in config.problem
    assert config.text == (data or {}).get("priorities")
