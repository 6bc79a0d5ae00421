"""The release and `get breaker` commands against a table (moto's DynamoDB in the same process)."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest

from chalicelib.cli.main import main
from chalicelib.model.memory import BreakerState, Memory
from chalicelib.model.timestamps import format_time
from chalicelib.store import Store
from tests.functional.conftest import ACCOUNT_NOW as NOW
from tests.unit.policy.policy_documents import GOOD

Said = pytest.CaptureFixture[str]
NAME = "prod-geneva"
ME = "arn:aws:sts::123456789012:user/moto"  # the caller in moto


class TypedAnswer(io.StringIO):
    """Standard input that a person types into."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def store(account: Store) -> Store:
    account.policies.put(NAME, GOOD, "d", None)
    return account


def remember(store: Store, breaker: BreakerState) -> None:
    lease = store.leases.acquire(NAME, "pass", 60)
    before = store.memory.load(NAME)
    store.memory.save(NAME, before, Memory(breaker=breaker), (), lease)
    store.leases.release(lease)


def answer(capsys: Said, *arguments: str) -> Any:
    """The JSON that the command prints."""
    capsys.readouterr()
    assert main([*arguments, "-o", "json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_breaker_is_released_for_an_hour(store: Store, capsys: Said) -> None:
    remember(
        store,
        BreakerState(((NOW - 60, 2, 30), (NOW - 4000, 9, 9)), tripped_at=NOW - 600, wanted=12),
    )
    assert main(["get", "breaker", NAME]) == 0
    assert capsys.readouterr().out == (
        f"{NAME}: tripped at {format_time(NOW - 600)} by a plan that removed 12 nodes at once; "
        "nodes removed in the last hour: 2, pods moved: 30\n"
    )
    assert main(["release", NAME]) == 0
    until = format_time(NOW + 3600)
    assert (
        capsys.readouterr().out
        == f"{NAME}: the circuit breaker is released until {until}; it was tripped\n"
    )
    assert store.memory.load(NAME).released_until == NOW + 3600
    assert answer(capsys, "get", "breaker", NAME) == {
        "name": NAME,
        "on": False,
        "pulledAt": format_time(NOW - 600),
        "wanted": 12,
        "releasedUntil": until,
        "lastHour": {"nodes": 2, "pods": 30},
    }
    [entry] = store.journal.recent(NAME)
    assert (entry.kind, entry.facts) == ("release", {"by": ME, "until": until, "was_on": True})


def test_untripped_breaker_can_be_released_in_advance(store: Store, capsys: Said) -> None:
    assert answer(capsys, "release", NAME, "--for", "90m", "--yes") == {
        "name": NAME,
        "wasOn": False,
        "on": False,
        "pulledAt": None,
        "wanted": 0,
        "releasedUntil": format_time(NOW + 5400),
        "lastHour": {"nodes": 0, "pods": 0},
    }
    assert main(["get", "breaker", NAME, "-o", "yaml"]) == 0
    assert "releasedUntil: '" in capsys.readouterr().out


def test_last_release_of_the_breaker_applies(store: Store, capsys: Said) -> None:
    answer(capsys, "release", NAME, "--for", "24h", "--yes")
    answer(capsys, "release", NAME, "--for", "1m")
    assert store.memory.load(NAME).released_until == NOW + 60


def test_breaker_that_is_not_tripped_is_released_only_if_a_person_confirms_it(
    store: Store, capsys: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["release", NAME, "--for", "20m"]) == 2  # no terminal
    act = f"suspend the limits of removals until {format_time(NOW + 1200)} all the same"
    assert (
        capsys.readouterr().err
        == f"{NAME}: its circuit breaker is not tripped; add --yes to {act}\n"
    )
    assert store.memory.load(NAME).released_until == 0
    for line, code, until in (
        ("\n", 2, 0.0),
        ("no\n", 2, 0.0),
        ("", 2, 0.0),
        ("y\n", 0, NOW + 1200),
    ):
        monkeypatch.setattr("sys.stdin", TypedAnswer(line))
        assert main(["release", NAME, "--for", "20m"]) == code
        assert "[y/N]" in capsys.readouterr().err
        assert store.memory.load(NAME).released_until == until


def test_tripped_breaker_is_released_without_a_question(store: Store, capsys: Said) -> None:
    remember(store, BreakerState((), tripped_at=NOW - 600, wanted=12))
    assert main(["release", NAME]) == 0
    assert "[y/N]" not in capsys.readouterr().err


LASTS = "argument --for: {!r} is not a duration from 1m to 24h, such as 20m"


@pytest.mark.usefixtures("store")
@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "the following arguments are required: CLUSTER"),
        *(
            ([NAME, "--for", text], LASTS.format(text))
            for text in ("10", "0", "25h", "soon", "59s")
        ),
        ([NAME, "--for", "-1h"], "argument --for: expected one argument"),
    ],
)
def test_invalid_release_arguments_are_a_one_line_error(
    arguments: list[str], says: str, capsys: Said
) -> None:
    assert main(["release", *arguments]) == 2
    assert capsys.readouterr().err == f"outscaler release: {says}; see outscaler release --help\n"


def test_release_of_an_unknown_cluster_is_rejected(store: Store, capsys: Said) -> None:
    assert main(["release", "prod-genva"]) == 2
    assert capsys.readouterr().err == "prod-genva: no such cluster; did you mean prod-geneva?\n"
    assert main(["release", "other"]) == 2
    assert store.memory.load("other") == Memory()


# -- group ownership


def claim(
    store: Store, cluster: str, group: str = "ch-gva-2#pool-1", *, discovered: bool = False
) -> None:
    key = ("exoscale", group)
    assert (
        store.group_ownership.claim_groups(cluster, [key], discovered=[key] if discovered else ())
        == {}
    )


def test_owner_of_a_group_is_shown_with_its_start(store: Store, capsys: Said) -> None:
    assert answer(capsys, "get", "claims") == []
    claim(store, NAME)
    claim(store, "gone", "ch-gva-2#pool-2", discovered=True)
    rows = answer(capsys, "get", "claims")
    assert rows == [
        {
            "provider": "exoscale",
            "group": "pool-1",
            "key": "ch-gva-2#pool-1",
            "cluster": NAME,
            "since": format_time(NOW),
            "named": True,
            "ended": "",
        },
        {
            "provider": "exoscale",
            "group": "pool-2",
            "key": "ch-gva-2#pool-2",
            "cluster": "gone",
            "since": format_time(NOW),
            "named": False,
            "ended": "",
        },
    ]
    assert main(["get", "claims"]) == 0
    assert "discovered" in capsys.readouterr().out


@pytest.mark.parametrize("named", ["pool-1", "ch-gva-2#pool-1"])
def test_released_group_can_be_owned_by_another_cluster(
    store: Store, capsys: Said, named: str
) -> None:
    claim(store, NAME)
    said = answer(capsys, "release", NAME, "--claim", named)
    assert said == {
        "name": NAME,
        "claim": "ch-gva-2#pool-1",
        "provider": "exoscale",
        "since": format_time(NOW),
    }
    claim(store, "other")
    assert not store.memory.load(NAME).released_until, "the brake stays as it is"


@pytest.mark.parametrize(
    ("arguments", "reported"),
    [
        (("release", NAME, "--claim", "pool-9"), f"--claim pool-9: {NAME} has no claim on it"),
        (("release", NAME, "--claim", "pool-2"), f"{NAME} has no claim on it, gone has"),
        (("get", "claims", NAME), f"no claim is called {NAME!r}; there are ch-gva-2#pool-2"),
    ],
)
def test_invalid_release_of_group_ownership_is_a_named_error(
    store: Store, capsys: Said, arguments: tuple[str, ...], reported: str
) -> None:
    claim(store, "gone", "ch-gva-2#pool-2")
    assert main(list(arguments)) == 2
    assert reported in capsys.readouterr().err


def test_release_of_group_ownership_is_refused_during_a_pass(store: Store, capsys: Said) -> None:
    claim(store, NAME)
    store.leases.acquire(NAME, "pass", 60)
    assert main(["release", NAME, "--claim", "pool-1"]) == 2
    assert f"a pass of {NAME} is under way" in capsys.readouterr().err
