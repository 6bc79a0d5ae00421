"""spec.schedules: parsing, and the refusal of schedules that set different
values at the same time.
"""

from __future__ import annotations

from datetime import datetime
from zoneinfo import ZoneInfo

from chalicelib.model.errors import InputErrors
from chalicelib.policy.load import load
from chalicelib.policy.open_schedules import apply_scheduled_bounds
from chalicelib.policy.settings.schedules import Schedule
from tests.builders import cluster
from tests.cases import each_row
from tests.unit.policy.policy_documents import with_spec
from tests.unit.policy.refused_documents import Case
from tests.unit.policy.test_policy_refusals import refusals


def document(*schedules: str, further: str = "") -> str:
    """A document with these schedules; the first is in line 10."""
    return with_spec(
        "schedules:\n" + "\n".join(f"- {{{each}}}" for each in schedules) + f"\n{further}"
    )


NIGHT = 'name: night, groups: [w], cron: "0 20 * * 1-5", duration: 11h, timeZone: Europe/Zurich'


@each_row(
    ("given", "schedule"),
    [
        (
            NIGHT + ", min: 0, max: 2, headroom: 0%",
            Schedule("night", "0 20 * * 1-5", 39600.0, "Europe/Zurich", ("w",), 0, 2, 0),
        ),
        (
            'name: a, cron: "0 18 * * 5", duration: 62h, mode: shadow',
            Schedule("a", "0 18 * * 5", 223200.0, mode="shadow"),
        ),
        (
            'name: a, cron: "0 18 * * 5", duration: 1m, mode: off',
            Schedule("a", "0 18 * * 5", 60.0, mode="off"),
        ),
        (
            'name: a, cron: "0 18 * * 5", duration: 1m, headroom: 50',
            Schedule("a", "0 18 * * 5", 60.0, headroom=50),
        ),
    ],
)
def test_policy_schedules_are_parsed(given: str, schedule: Schedule) -> None:
    policy, reported = load(document(given), place="p.yaml")
    assert (policy.schedules, reported) == ((schedule,), ())


ENTRY = "p.yaml:10: spec.schedules[0]"
WHEN = 'name: a, cron: "0 18 * * 5", duration: 1h'
GROUP = "nodeGroups: [{provider: clusterapi, id: MachineDeployment/a/w, min: 1, max: 5}]"
MIN_6 = WHEN + ", groups: [MachineDeployment/a/w], min: 6"
WRONG: list[Case] = [
    (
        with_spec("schedules: {night: 1}"),
        "p.yaml:9: spec.schedules",
        "is not a list",
        "- {name: night",
    ),
    (
        document('cron: "0 18 * * 5", duration: 1h, min: 1'),
        f"{ENTRY}.name",
        "is missing",
        "name: NAME",
    ),
    (
        document("name: a, duration: 1h, min: 1"),
        f"{ENTRY}.cron",
        "is missing",
        'cron: "0 20 * * 1-5"',
    ),
    (
        document('name: a, cron: "0 18 * * 5", min: 1'),
        f"{ENTRY}.duration",
        "is missing",
        "duration: 11h",
    ),
    (document(WHEN), ENTRY, "sets nothing", "add one of min, max, headroom, mode"),
    (document(WHEN + ", min: 3, max: 2"), f"{ENTRY}.max", "2 is below min 3", "write 3 or more"),
    (document(WHEN + ", min: -1"), f"{ENTRY}.min", "out of range", "0 or more"),
    (
        document(WHEN + ", headroom: -1%"),
        f"{ENTRY}.headroom",
        "not a whole percentage",
        "from 0% to 1000%",
    ),
    (document(WHEN + ", mode: on"), f"{ENTRY}.mode", "'on' is unknown", "off, shadow or active"),
    (
        document(WHEN + ", mode: off, groups: [w]"),
        f"{ENTRY}.mode",
        "the whole cluster's",
        "take groups out",
    ),
    (
        document(WHEN + ", min: 1, groups: []"),
        f"{ENTRY}.groups",
        "names no group",
        "take the line out",
    ),
    (
        document('name: a, cron: "0 18 * * *", duration: 25h, min: 1'),
        f"{ENTRY}.duration",
        "25h is longer than the 24h until it opens again",
        "at most 24h",
    ),
    (
        document('name: a, cron: "0 18 * * *", duration: 33d, min: 1'),
        f"{ENTRY}.duration",
        "not a duration",
        "1h30m",
    ),
    (
        document('name: a, cron: "0 18 * * 8", duration: 1h, min: 1'),
        f"{ENTRY}.cron",
        "is not cron",
        "0 22 * * 1-5",
    ),
    (
        document(WHEN + ", min: 1, timeZone: CEST"),
        f"{ENTRY}.timeZone",
        "is not a time zone",
        "Europe/Zurich",
    ),
    (
        document(WHEN + ", min: 1, groups: [v]", WHEN + ", min: 1, groups: [w]"),
        "p.yaml:11: spec.schedules[1].name",
        "a is already schedules[0]",
        "once",
    ),
    (document(MIN_6, further=GROUP), f"{ENTRY}.min", "6 is above max 5 of", "write 5 or less"),
    (
        document(WHEN + ", min: 6", further=GROUP),
        f"{ENTRY}.min",
        "5 of MachineDeployment/a/w",
        "add max",
    ),
    (document(WHEN + ", max: 0", further=GROUP), f"{ENTRY}.max", "0 is below min 1 of", "add min"),
    (document(*[WHEN] * 51), "p.yaml:9: spec.schedules", "has 51 schedules", "at most 50"),
]


@each_row(("text", "place", "problem", "remedy"), WRONG)
def test_policy_schedules_errors_name_their_position(
    text: str, place: str, problem: str, remedy: str
) -> None:
    (reported,) = refusals(text)
    assert reported.startswith(f"{place}: ")
    assert problem in reported
    assert remedy in reported
    assert "\n" not in reported


@each_row(
    "given",
    [MIN_6 + ", max: 6", WHEN + ", max: 1", WHEN + ", min: 0, max: 0", MIN_6.replace("/w]", "/v]")],
)
def test_policy_schedules_bounds_compatible_with_the_groups_own_are_accepted(given: str) -> None:
    assert len(load(document(given, further=GROUP), place="p.yaml")[0].schedules) == 1


def pair(first: str, second: str, *, further: str = "") -> list[str]:
    """Returns the errors of two schedules: cron|duration|the rest of each."""
    entries = []
    for name, each in (("one", first), ("two", second)):
        cron, lasts, rest = each.split("|")
        entries.append(f'name: {name}, cron: "{cron}", duration: {lasts}, {rest}')
    text = document(*entries, further=further)
    try:
        load(text, place="p.yaml")
    except InputErrors as refused:
        return [str(problem) for problem in refused.problems]
    return []


@each_row(
    ("first", "second", "says"),
    [
        (
            "0 20 * * *|11h|max: 2, groups: [w]",
            "0 6 * * 1|2h|max: 5, groups: [v, w]",
            (
                "p.yaml:11: spec.schedules[1].max: the max of w is also set by one "
                "(schedules[0]), and both are open for exa"
            ),
        ),
        (
            "0 20 * * *|11h|max: 2, groups: [w]",
            "0 6 * * 1|2h|max: 5, groups: [v, w]",
            "for example at 2023-12-04 06:00 UTC; let one of them end before the other begins",
        ),
        (
            "0 20 * * *|11h|min: 2",
            "0 6 * * 1|2h|min: 5, groups: [v]",
            "the min of v is also set by one",
        ),
        (
            "0 20 * * *|11h|min: 2",
            "0 6 * * 1|2h|min: 5",
            "the min of every group is also set by one",
        ),
        (
            "0 8 * * *|10h|mode: off",
            "0 0 25 12 *|24h|mode: shadow",
            "the mode of the cluster is also set by one",
        ),
        (
            "0 8 * * *|10h|headroom: 5",
            "0 9 * * *|1h|headroom: 9",
            "the headroom of the cluster is also set",
        ),
        (
            "0 8 * * *|10h|headroom: 5, groups: [w]",
            "0 9 * * *|1h|headroom: 9, groups: [w]",
            "the headroom of w is also",
        ),
        (
            "0 8 * * *|10h|min: 5, groups: [w]",
            "0 9 * * *|1h|max: 4, groups: [w]",
            "spec.schedules[1].max: 4 is below the min 5 for w of one",
        ),
        (
            "0 8 * * *|10h|max: 4",
            "0 9 * * *|1h|min: 5, groups: [w]",
            "spec.schedules[1].min: 5 is above the max 4 for w of one",
        ),
    ],
)
def test_policy_schedules_setting_the_same_value_at_once_are_refused(
    first: str, second: str, says: str
) -> None:
    (reported,) = pair(first, second)
    assert says in reported


def test_policy_schedules_headroom_of_an_entrys_two_groups_is_one_value() -> None:
    both = ("0 8 * * *|10h|headroom: 5, groups: [v]", "0 9 * * *|1h|headroom: 9, groups: [w]")
    assert pair(*both) == []
    (reported,) = pair(*both, further="headroom: [{name: shared, groups: [v, w], percent: 10}]")
    assert "the headroom of shared is also set by one" in reported


@each_row(
    ("first", "second"),
    [
        # one ends when the next begins
        ("0 20 * * *|11h|max: 2, groups: [w]", "0 7 * * *|13h|max: 5, groups: [w]"),
        # other groups
        ("0 20 * * *|11h|max: 2, groups: [w]", "0 20 * * *|11h|max: 5, groups: [v]"),
        # another value
        ("0 20 * * *|11h|max: 2, groups: [w]", "0 20 * * *|11h|headroom: 5%, groups: [w]"),
        # entries with and without groups
        ("0 20 * * *|11h|headroom: 2", "0 20 * * *|11h|headroom: 5, groups: [w]"),
        ("0 20 * * *|11h|min: 2, groups: [w]", "0 21 * * *|1h|max: 2, groups: [w]"),  # equal bounds
        ("0 0 29 2 *|24h|max: 2", "0 0 28 2 *|24h|max: 5"),
    ],
)
def test_policy_schedules_that_never_overlap_are_accepted(first: str, second: str) -> None:
    assert pair(first, second) == []


def test_policy_schedules_same_wall_clock_in_two_zones_is_not_the_same_time() -> None:
    # 20:00 to 07:00 in Zurich ends at 06:00 UTC in winter and 05:00 UTC in summer; the
    # day in UTC begins at 05:30.
    night = "0 20 * * *|11h|max: 2, timeZone: Europe/Zurich"
    (reported,) = pair(night, "30 5 * * *|10h|max: 5")
    assert "2023-12-02 05:30 UTC" in reported
    assert pair(night, "0 6 * * *|10h|max: 5") == []


def test_policy_schedules_overlap_only_in_summer_time_is_found() -> None:
    # 09:00 in New York is 15:00 in Zurich except in the weeks in which only one of the
    # two has changed its clock.
    (reported,) = pair(
        "0 9 * * *|1h|max: 2, timeZone: America/New_York",
        "0 14 * * *|1h|max: 5, timeZone: Europe/Zurich",
    )
    assert "2024-03-10 14:00 Europe/Zurich" in reported


def test_policy_schedules_error_in_one_schedule_is_not_also_an_overlap() -> None:
    (reported,) = pair("0 20 * * *|11h|max: 2", "0 20 * * *|25h|max: 3")
    assert "25h is longer than" in reported


def day_and_night(*entries: str, zone: str = "Europe/Zurich") -> str:
    return document(
        *(f"name: s{at}, timeZone: {zone}, groups: [w], {each}" for at, each in enumerate(entries))
    )


DAY, LONG_NIGHT = 'cron: "0 8 * * *", duration: 9h', 'cron: "0 17 * * *", duration: 15h'


@each_row(
    ("first", "second", "says"),
    [
        (
            f"{DAY}, min: 5",
            f"{LONG_NIGHT}, min: 1",
            (
                "p.yaml:11: spec.schedules[1].min: the min of w is also set by s0 "
                "(schedules[0]), and both are open when the c"
            ),
        ),
        (
            f"{DAY}, min: 5",
            f"{LONG_NIGHT}, min: 1",
            (
                "when the clock is changed, for example at 2024-03-31 08:00 Europe/Zurich: this "
                "one has the word then"
            ),
        ),
        (
            f"{LONG_NIGHT}, headroom: 0",
            f"{DAY}, headroom: 9",
            "for example at 2024-03-31 08:00 Europe/Zurich: this one",
        ),
        (
            f"{DAY}, min: 5",
            f"{LONG_NIGHT}, max: 2",
            "schedules[1].max: 2 is below the min 5 for w of s0 (schedules[0])",
        ),
        (
            f"{DAY}, min: 5",
            f"{LONG_NIGHT}, max: 2",
            "for example at 2024-03-31 08:00 Europe/Zurich: max holds then",
        ),
    ],
)
def test_policy_schedules_day_night_overlap_by_clock_change_only_is_a_warning(
    first: str, second: str, says: str
) -> None:
    policy, (reported,) = load(day_and_night(first, second), place="p.yaml")
    assert says in reported
    assert len(policy.schedules) == 2
    # where clocks never change
    assert load(day_and_night(first, second, zone="UTC"), place="p.yaml")[1] == ()
    assert load(day_and_night(first, second, zone="Asia/Tokyo"), place="p.yaml")[1] == ()


def test_policy_schedules_later_entry_wins_during_a_clock_change_overlap() -> None:
    both = datetime(2024, 3, 31, 8, 30, tzinfo=ZoneInfo("Europe/Zurich")).timestamp()
    for order in (
        (DAY + ", min: 5", LONG_NIGHT + ", min: 1"),
        (LONG_NIGHT + ", min: 1", DAY + ", min: 5"),
    ):
        policy, _ = load(day_and_night(*order), place="p.yaml")
        snapshot = apply_scheduled_bounds(cluster().group("w", target=3).snapshot(), policy, both)
        assert snapshot.groups[0].min == policy.schedules[1].min
    policy, _ = load(day_and_night(DAY + ", min: 5", LONG_NIGHT + ", max: 2"), place="p.yaml")
    (group,) = apply_scheduled_bounds(
        cluster().group("w", target=3).snapshot(), policy, both
    ).groups
    assert (group.min, group.max) == (2, 2)


@each_row("night", ['cron: "0 17 * * *", duration: 15h1m', 'cron: "59 16 * * *", duration: 15h'])
def test_policy_schedules_daily_overlap_is_refused_in_a_zone_with_clock_changes(night: str) -> None:
    (reported,) = refusals(day_and_night(f"{DAY}, min: 5", f"{night}, min: 1"))
    assert "and both are open for example at 2023-12-" in reported


def test_policy_schedules_of_every_minute_overlap_months_later() -> None:
    june, december_too = (
        'cron: "* * * 6 *", duration: 1m, min: 5',
        'cron: "* * * 6,12 *", duration: 1m, min: 1',
    )
    (reported,) = refusals(day_and_night(june, december_too, zone="UTC"))
    assert "and both are open for example at 2024-06-01 00:00 UTC" in reported
    (reported,) = refusals(day_and_night(december_too, june, zone="UTC"))
    assert "and both are open for example at 2024-06-01 00:00 UTC" in reported
