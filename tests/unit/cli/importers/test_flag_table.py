"""Every flag that Cluster Autoscaler has had is known to the import."""

from __future__ import annotations

from chalicelib.cli.migrate.flag_table import KNOWN, Fate, nearest
from chalicelib.cli.migrate.report import Draft, Verdict
from chalicelib.cli.migrate.translate_flags import translate_flags
from chalicelib.policy.options import FLAGS, default_text
from tests.cases import each_row
from tests.unit.cli.importers.autoscaler_inputs import argument

OLD_SPELLINGS = (
    "scale-down-delay",
    "scale-down-trial-interval",
    "unregistered-node-removal-time",
    "max-grateful-termination-sec",
    "verify-unschedulable-pods",
    "filter-out-schedulable-pods-uses-packing",
    "configmap",
)


def test_IMP_40_every_flag_with_its_default_is_known_and_writes_no_option() -> None:
    words = [
        f"--{flag}={value}"
        for flag, known in KNOWN.items()
        if known.fate is not Fate.PLACE and flag in FLAGS
        for value in filter(None, default_text(FLAGS[flag]).split(", "))
    ]
    draft = Draft()
    translate_flags([argument(word) for word in words], None, draft, skip_unknown=False)
    draft.check()
    assert draft.options == {}
    assert Verdict.UNKNOWN not in {row.verdict for row in draft.rows}
    assert Verdict.NOT_HERE not in {row.verdict for row in draft.rows}


def test_the_import_knows_every_option_and_every_old_spelling() -> None:
    assert {*FLAGS, *OLD_SPELLINGS} <= set(KNOWN)


@each_row(
    "word, meant",
    [
        ("scale-down-uneeded-time", "scale-down-unneeded-time"),
        ("expanders", "expander"),
        ("quite-something-different", ""),
    ],
)
def test_an_unknown_flag_has_the_nearest_known_one(word: str, meant: str) -> None:
    assert nearest(word) == meant
