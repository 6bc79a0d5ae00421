"""Defaults of releases are written out where they decide which nodes are bought or removed."""

from __future__ import annotations

from chalicelib.cli.migrate.flag_table import release_defaults
from chalicelib.cli.migrate.report import Draft
from chalicelib.cli.migrate.translate_flags import translate_flags
from tests.cases import each_row
from tests.unit.cli.importers.autoscaler_inputs import argument

BLOCKING = "blockingSystemPodDistruptionTimeout"


@each_row(
    "version, options",
    [
        (None, []),
        ((1, 34), [BLOCKING]),
        ((1, 33), ["cordonNodeBeforeTerminating", BLOCKING]),
        ((1, 32), ["expander", "cordonNodeBeforeTerminating"]),
        ((1, 29), ["expander", "cordonNodeBeforeTerminating"]),
        (
            (1, 3),
            [
                "expander",
                "expendablePodsPriorityCutoff",
                "scaleDownDelayAfterDelete",
                "cordonNodeBeforeTerminating",
            ],
        ),
    ],
)
def test_each_release_has_its_own_defaults(
    version: tuple[int, int] | None, options: list[str]
) -> None:
    assert [row.option for row in release_defaults(version, set())] == options


def test_a_given_flag_and_removable_system_pods_need_no_default() -> None:
    draft = Draft()
    words = ("--cordon-node-before-terminating=true", "--skip-nodes-with-system-pods=false")
    translate_flags([argument(word) for word in words], (1, 33), draft, skip_unknown=False)
    assert draft.options == {"cordonNodeBeforeTerminating": True, "skipNodesWithSystemPods": False}
