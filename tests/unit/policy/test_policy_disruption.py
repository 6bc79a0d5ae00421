"""maxDisruption and maintenanceWindows: errors are refused at their
position with the expected form.
"""

from __future__ import annotations

from tests.cases import each_row
from tests.unit.policy.policy_documents import with_spec
from tests.unit.policy.refused_documents import Case
from tests.unit.policy.test_policy_refusals import refusals

THE_BRAKE: list[Case] = [
    (with_spec("maxDisruption: 5"), "p.yaml:9: spec.maxDisruption", "is '5'", "write a mapping"),
    (
        with_spec("maxDisruption: {nodes: 5}"),
        "p.yaml:9: spec.maxDisruption.nodes",
        "is unknown",
        "nodesPerHour",
    ),
    (
        with_spec("maxDisruption: {nodesPerHour: -1}"),
        "p.yaml:9: spec.maxDisruption.nodesPerHour",
        "out of range",
        "0 or more",
    ),
    (
        with_spec("maxDisruption: {podsPerHour: many}"),
        "p.yaml:9: spec.maxDisruption.podsPerHour",
        "'many' is not",
        "0 or more",
    ),
    *(
        (
            with_spec(f"maxDisruption: {{share: {share}}}"),
            "p.yaml:9: spec.maxDisruption.share",
            f"'{share}' is not a share",
            "0.25 or 25%",
        )
        for share in ("30", "101%", "-1", "1.01", "half", "25 percent")
    ),
]


def window(fields: str) -> str:
    """A document with one maintenance window."""
    return with_spec(f"maintenanceWindows: [{{{fields}}}]")


CRON, ZONE, LASTS = (
    f"p.yaml:9: spec.maintenanceWindows[0].{key}" for key in ("cron", "timeZone", "duration")
)

THE_WINDOWS: list[Case] = [
    (
        with_spec("maintenanceWindows: always"),
        "p.yaml:9: spec.maintenanceWindows",
        "is not a list",
        "- {name: nights",
    ),
    (
        with_spec("maintenanceWindows: [nights]"),
        "p.yaml:9: spec.maintenanceWindows[0]",
        "is 'nights'",
        "a mapping",
    ),
    (window("duration: 1h"), CRON, "is missing", 'add cron: "0 22 * * 1-5"'),
    (window("cron: 0 22 * * 1-5"), LASTS, "is missing", "add duration: 6h"),
    (window("cron: '@daily', duration: 1h"), CRON, "'@daily' is not five fields", "0 22 * * 1-5"),
    (window("cron: 0 0 22 * * 1, duration: 1h"), CRON, "is not five fields", "0 22 * * 1-5"),
    (
        window("cron: 60 * * * *, duration: 1m"),
        CRON,
        "is not cron (Bad minute)",
        "write minute, hour",
    ),
    (
        window("cron: 0 0 31 2 *, duration: 1h"),
        CRON,
        "is not cron (Bad day-of-month)",
        "write minute, hour",
    ),
    (
        window(f"cron: {'9' * 5000} * * * *, duration: 1m"),
        CRON,
        "longer than 128 characters",
        "several windows",
    ),
    (window("cron: 0 2 * * *, duration: 0s"), LASTS, "'0s' is out of range", "from 1m to 744h"),
    (window("cron: 0 2 * * *, duration: -1h"), LASTS, "is negative", "from 1m to 744h"),
    (
        window("cron: 0 2 * * *, duration: 25h"),
        LASTS,
        "25h is longer than the 24h until it opens again",
        "at most 24h",
    ),
    (
        window("cron: 0 8-18 * * *, duration: 2h"),
        LASTS,
        "2h is longer than the 1h",
        "or let it open less often",
    ),
    (
        window("cron: 0 2 * * *, duration: 1h, timeZone: Mars/Phobos"),
        ZONE,
        "'Mars/Phobos' is not a time zone",
        "Europe/Zurich or UTC",
    ),
    (
        window("cron: 0 2 * * *, duration: 1h, timeZone: America"),
        ZONE,
        "'America' is not a time zone",
        "Zurich",
    ),
    (
        window("cron: 0 2 * * *, duration: 1h, timeZone: ../../etc/passwd"),
        ZONE,
        "is not a time zone",
        "Zurich",
    ),
    (
        window("cron: 0 2 * * *, duration: 1h, timeZone: localtime"),
        ZONE,
        "is not a time zone",
        "Zurich",
    ),
    (
        window("cron: 0 2 * * *, duration: 1h, removals: no"),
        "p.yaml:9: spec.maintenanceWindows[0].removals",
        "'no' is unknown",
        "allowed or forbidden",
    ),
    (
        window("cron: 0 2 * * *, duration: 1h, name: a}, {cron: 0 5 * * *, duration: 1h, name: a"),
        "p.yaml:9: spec.maintenanceWindows[1].name",
        "a is already maintenanceWindows[0]",
        "once",
    ),
    (
        window("}, {".join(["cron: 0 2 * * *, duration: 1h"] * 51)),
        "p.yaml:9: spec.maintenanceWindows",
        "has 51 windows",
        "at most 50",
    ),
]


@each_row(("text", "place", "problem", "remedy"), [*THE_BRAKE, *THE_WINDOWS])
def test_policy_disruption_and_window_errors_name_their_place(
    text: str, place: str, problem: str, remedy: str
) -> None:
    (reported,) = refusals(text)
    assert reported.startswith(f"{place}: ")
    assert problem in reported
    assert remedy in reported
    assert "\n" not in reported
