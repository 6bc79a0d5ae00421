"""`outscaler advise`: schedules from the operations of an account, and what it
says where there are none.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import msgspec
import pytest
import yaml

from chalicelib.cli.main import main
from chalicelib.model.memory import GroupMemory, JoinStatistics, Memory
from chalicelib.model.operation import Operation, OperationKind, OperationState, RemovalTarget
from chalicelib.model.overview import ClusterOverview, GroupOverview
from chalicelib.plan.planner import plan_cluster
from chalicelib.policy.settings.cluster_options import Options
from chalicelib.policy.settings.cluster_policy import Policy
from chalicelib.policy.settings.node_prices import NodePrices
from chalicelib.replay.recorded_decision import RecordedDecision, encode, key_of
from chalicelib.store import Store
from chalicelib.store.gauge_ring import GaugePoint
from chalicelib.store.memory_rows import to_row
from tests.builders import cluster, node
from tests.functional.conftest import ACCOUNT_NOW as NOW
from tests.operations import new_operation
from tests.source_trees import ROOT
from tests.unit.policy.policy_documents import AMBIGUOUS, GOOD

Said = pytest.CaptureFixture[str]
SHOP, GROUP, DAY = "shop", "ns/workers", 86400.0
ZURICH = ZoneInfo("Europe/Zurich")


def operation(at: float, kind: OperationKind, **fields: Any) -> Operation:
    return new_operation(
        id=f"{kind.value}-{at:.0f}",
        cluster=SHOP,
        provider="clusterapi",
        group=GROUP,
        kind=kind,
        plan="p",
        created_at=at,
        price=250_000,
        currency="EUR",
        state=OperationState.SUCCEEDED,
        updated_at=at + 1,
        **fields,
    )


def mornings(days: int, *, holiday: int = -1) -> list[Operation]:
    """On working days up to today from two nodes to six at about 08:20 in Zurich, for nine pods,
    and back at 18:00. holiday: so many days before today there is none."""
    today = datetime.fromtimestamp(NOW, ZURICH).replace(hour=0, minute=0, second=0)
    operations = []
    for back in range(days + 1):
        day = today - timedelta(days=back)
        if day.weekday() < 5 and back != holiday:
            at = day.replace(hour=8, minute=15 + back % 10).timestamp()
            pods = tuple(f"front/web-{number}" for number in range(9))
            operations.append(
                operation(at, OperationKind.SCALE_UP, from_size=2, to_size=6, pods=pods)
            )
            targets = tuple(RemovalTarget(f"w-{number}", f"w-{number}") for number in range(4))
            operations.append(
                operation(
                    day.replace(hour=18).timestamp(), OperationKind.DELETE_NODES, targets=targets
                )
            )
    return [item for item in operations if item.spec.created_at < NOW]


def record(
    store: Store,
    operations: Sequence[Operation],
    *,
    days: float = 30.0,
    ready: tuple[int, ...] = (290, 300, 310),
) -> None:
    """Store what passes and executors of so many days would have."""
    for item in operations:
        store.operations._table.write(store.operations._table.put(to_row(item)))
    first = NOW - days * DAY
    memory = Memory(
        groups={GROUP: GroupMemory(2, joins=JoinStatistics(ready=ready), first_seen=first)},
        first_seen=first,
    )
    lease = store.leases.acquire(SHOP, "pass", 60)
    store.memory.save(SHOP, store.memory.load(SHOP), memory, (), lease)
    group = GroupOverview(
        GROUP, "Workers", "clusterapi", price=0.25, currency="EUR", ready=2, min=1, max=20
    )
    store.gauge_rings.add(
        SHOP, GaugePoint(NOW, 2, 0), ClusterOverview(NOW, (group,), currency="EUR"), seen=0.0
    )
    store.leases.release(lease, passed_at=NOW, succeeded=True)


@pytest.fixture
def empty(account: Store) -> Store:
    """A cluster with a policy in Zurich's time, without a pass."""
    windows = (
        '  maintenanceWindows: [{cron: "0 22 * * *", duration: 6h, timeZone: Europe/Zurich}]\n'
    )
    account.policies.put(SHOP, GOOD.replace("prod-geneva", SHOP) + windows, "d1", None)
    return account


def printed(capsys: Said, *arguments: str) -> str:
    capsys.readouterr()
    assert main(["advise", *arguments]) == 0
    return capsys.readouterr().out


def answer(capsys: Said, *arguments: str) -> Any:
    return json.loads(printed(capsys, *arguments, "-o", "json"))


def refusal(capsys: Said, *arguments: str) -> str:
    capsys.readouterr()
    assert main(["advise", *arguments]) == 2
    return capsys.readouterr().err.strip()


def test_mornings_of_two_weeks_become_one_schedule(empty: Store, capsys: Said) -> None:
    record(empty, mornings(20))
    data = answer(capsys)
    [proposal] = data.pop("proposals")
    assert proposal["schedule"] == {
        "name": "advised-Workers-mon-fri-0810",
        "groups": [GROUP],
        "cron": "10 8 * * 1-5",
        "timeZone": "Europe/Zurich",
        "duration": "30m",
        "min": 6,
    }
    assert proposal["evidence"] == {
        "weekdays": "Mon-Fri",
        "from": "08:15",
        "until": "08:30",
        "days": 10,
        "daysWithPurchases": 10,
        "weeks": 3,
        "weeksWithPurchases": 3,
        "nodesBought": 40,
        "podsWaited": 90,
        "size": 6,
        "leadSeconds": 300.0,
        "leadLearned": True,
    }
    tested = proposal["tested"]
    assert (
        tested["openings"],
        tested["needlessOpenings"],
        tested["notNeeded"],
        tested["missing"],
    ) == (3, 0, 0.0, 0.0)
    # three mornings of four days, nine pods for five minutes
    assert tested["waitedMinutesPerDay"] == 3 * 9 * 5 / 4
    assert tested["savedMinutesPerDay"] == tested["waitedMinutesPerDay"]
    assert 0 < tested["costPerDay"] < 0.25
    assert (data["days"], data["timeZone"], data["notProposed"], data["replayed"]) == (
        14.0,
        "Europe/Zurich",
        [],
        None,
    )


def test_fragment_is_accepted_in_the_policy(empty: Store, tmp_path: Path, capsys: Said) -> None:
    record(empty, mornings(20, holiday=2))
    text = printed(capsys, SHOP, "-o", "yaml")
    assert (
        "# Mon-Fri 08:15-08:30: 36 nodes of Workers bought for 81 pods on 9 of 10 days, in 3 "
        "of 3 weeks"
    ) in text
    assert "needless on 1 of 3 days" in text, "the holiday is among the tested days"
    document = yaml.safe_load(empty.policies.current(SHOP).text)  # type: ignore[union-attr]
    document["spec"] |= yaml.safe_load(text)["spec"]
    file = tmp_path / "policy.yaml"
    file.write_text(yaml.safe_dump(document))
    assert main(["validate", "--strict", str(file)]) == 0
    empty.policies.put(SHOP, file.read_text(), "d2", 1)
    [row] = answer(capsys, SHOP)["notProposed"]
    assert row["why"].endswith(
        "schedule advised-Workers-mon-fri-0810 sets the same at the same time"
    )


def test_advice_is_accepted_beside_values_that_yaml_reads_otherwise(
    empty: Store, capsys: Said
) -> None:
    record(empty, mornings(20))
    stored = empty.policies.current(SHOP)
    assert stored is not None
    empty.policies.put(SHOP, stored.text + AMBIGUOUS, "d2", 1)
    data = answer(capsys, SHOP)
    assert (len(data["proposals"]), data["notProposed"]) == (1, [])


def test_table_has_evidence_test_and_fragment(empty: Store, capsys: Said) -> None:
    record(empty, mornings(20))
    text = printed(capsys, SHOP)
    lines = [" ".join(line.split()) for line in text.splitlines()]
    assert lines[0] == "shop: 14 days of history until 2026-11-18, times in Europe/Zurich"
    assert "Workers Mon-Fri 08:15-08:30 10 of 10 3 of 3 40 90 min 6 10 8 * * 1-5, 30m" in lines
    assert any(
        line.startswith("Fitted to the first 10 days, tested on the last 4 (computed")
        for line in lines
    )
    assert "cron: 10 8 * * 1-5" in lines


def test_worked_example_of_the_page_is_what_the_command_prints(empty: Store, capsys: Said) -> None:
    record(empty, mornings(20, holiday=2))
    page = (ROOT / "docs" / "advise.md").read_text("utf-8")
    table, schedules = re.findall(r"```(?:yaml)?\n((?:shop:|spec:).*?)```", page, re.DOTALL)
    assert printed(capsys, SHOP).startswith(table)
    assert yaml.safe_load(printed(capsys, SHOP, "-o", "yaml")) == yaml.safe_load(schedules)


def test_maximum_provision_time_is_the_lead_of_a_group_that_taught_none(
    empty: Store, capsys: Said
) -> None:
    record(empty, mornings(20), ready=())
    [proposal] = answer(capsys)["proposals"]
    assert proposal["schedule"]["cron"] == "0 8 * * 1-5"
    assert (proposal["evidence"]["leadSeconds"], proposal["evidence"]["leadLearned"]) == (
        900.0,
        False,
    )


def test_lead_of_an_even_number_of_joins_is_a_time_that_a_node_took(
    empty: Store, capsys: Said
) -> None:
    record(empty, mornings(20), ready=(300, 100, 900, 290))
    [proposal] = answer(capsys)["proposals"]
    assert (proposal["evidence"]["leadSeconds"], proposal["evidence"]["leadLearned"]) == (
        290.0,
        True,
    )


@pytest.mark.parametrize(
    ("days", "why"),
    [(3.0, "too little history: 3 of 14 days"), (13.5, "too little history: 13 of 14 days")],
)
def test_too_little_history_proposes_nothing(
    empty: Store, capsys: Said, days: float, why: str
) -> None:
    record(empty, mornings(int(days)), days=days)
    data = answer(capsys)
    assert (data["proposals"], data["notProposed"]) == ([], [{"group": "", "why": why}])
    assert printed(capsys, "-o", "yaml").splitlines()[1:] == [
        f"# nothing is proposed: {why}",
        "spec: {}",
    ]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("shpo",), "shpo: no such cluster; did you mean shop?"),
        (("--days", "36"), "'36' is not a number from 14 to 35"),
        (("--days", "13"), "'13' is not a number from 14 to 35: patterns of a week need two weeks"),
        (
            ("--time-zone", "Zurich"),
            "'Zurich' is not a time zone; write it like Europe/Zurich or UTC",
        ),
        (("--groups", "wrkers"), "no node group is called 'wrkers'; did you mean"),
        (("--from", "/nowhere"), "/nowhere: is not a folder"),
    ],
)
def test_advise_refuses_wrong_arguments(
    empty: Store, capsys: Said, words: tuple[str, ...], says: str
) -> None:
    record(empty, mornings(20))
    assert says in refusal(capsys, *words)


def test_advice_before_the_first_pass_says_so(empty: Store, capsys: Said) -> None:
    assert refusal(capsys, SHOP) == "shop: no pass has been made yet; repeat it after 14 days"


def test_recorded_decisions_are_replayed_with_the_advice(
    empty: Store, tmp_path: Path, capsys: Said
) -> None:
    record(empty, mornings(20))
    builder = (
        cluster()
        .node("w-0", "4", "16Gi", group=GROUP)
        .group(GROUP, max=20, price=0.25, currency="EUR", template=node("t", "4", "16Gi"))
    )
    opened = (
        datetime.fromtimestamp(NOW, ZURICH).replace(hour=8, minute=10, second=30).timestamp() - DAY
    )
    for minutes in (0, 10):
        now = opened + minutes * 60
        own = Policy(SHOP, options=Options(), prices=NodePrices(cpu=0.05, currency="EUR"))
        snapshot = msgspec.structs.replace(builder.snapshot(), cluster=SHOP, taken_at=now)
        plan, _ = plan_cluster(snapshot, own, Memory(), now, 1)
        decision = RecordedDecision(snapshot, own, Memory(), now, 1, plan)
        file = tmp_path / key_of(decision).path()
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(encode(decision))
    replayed = answer(capsys, SHOP, "--from", str(tmp_path))["replayed"]
    assert (replayed["source"], replayed["decisions"]) == ("replayed with recorded decisions", 2)
    # from one to six
    assert (replayed["recorded"]["nodesBought"], replayed["withAdvice"]["nodesBought"]) == (0, 5)
    assert replayed["withAdvice"]["cost"]["EUR"] > replayed["recorded"]["cost"]["EUR"]
