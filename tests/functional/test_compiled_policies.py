"""Functions read the compiled policy that apply stored, and the text
wherever that form is of no use.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pynamodb.attributes import NumberAttribute, UnicodeAttribute

from chalicelib.cli.main import main
from chalicelib.policy.compiled import compiled
from chalicelib.policy.load import digest, load
from chalicelib.runtime import active_policy
from chalicelib.store import Store, StoredPolicy
from chalicelib.store.policies import FITTING
from chalicelib.store.tables import POLICIES, InstantAttribute, RowKey
from infra.emulators.aws import LocalAws
from tests.functional.app_client import Premises
from tests.unit.policy.policy_documents import GOOD

Said = pytest.CaptureFixture[str]
NAME = "prod-geneva"
ROOT = Path(__file__).resolve().parents[2]


class OldPolicyRow(RowKey):
    """The row as a release without compiled policies reads it."""

    name = UnicodeAttribute()
    version = NumberAttribute()
    text = UnicodeAttribute()
    digest = UnicodeAttribute()
    stored_at = InstantAttribute()


@pytest.fixture(scope="module")
def aws() -> Iterator[LocalAws]:
    with LocalAws() as emulated:
        yield emulated


@pytest.fixture
def premises(aws: LocalAws) -> Premises:
    return Premises(aws)


@pytest.fixture
def store(premises: Premises) -> Store:
    return premises.store


@pytest.fixture
def document(premises: Premises, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    for name, value in {
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": "testing",
        "AWS_SECRET_ACCESS_KEY": "testing",
        "AWS_ENDPOINT_URL": premises.aws.endpoint,
        "OUTSCALER_TABLE": premises.table,
    }.items():
        monkeypatch.setenv(name, value)
    path = tmp_path / "policy.yaml"
    path.write_text(GOOD, encoding="utf-8")
    return path


def _form(text: str = GOOD) -> bytes:
    form = compiled(load(text, place="p")[0], text)
    assert form is not None
    return form


def _stored(store: Store, name: str = NAME) -> StoredPolicy:
    stored = store.policies.current(name)
    assert stored is not None
    return stored


def _modules(stored: StoredPolicy) -> list[str]:
    """What a new process has loaded of the policy reader and YAML, once it has read this policy."""
    script = (
        "import sys; from chalicelib.runtime.active_policy import in_force; "
        "from chalicelib.store.policies import StoredPolicy\n"
        f"assert in_force({stored!r}, 0.0).name == {stored.name!r}\n"
        "print([m for m in ('yaml', 'chalicelib.policy.load') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True
    )
    loaded: list[str] = json.loads(done.stdout.splitlines()[-1].replace("'", '"'))
    return loaded


def test_what_apply_stores_is_read_without_yaml(store: Store, document: Path) -> None:
    assert main(["apply", str(document)]) == 0
    stored = _stored(store)
    assert stored.compiled == _form()
    assert store.policies.all_current() == (stored,)
    assert store.policies.history(NAME) == (stored,)
    assert _modules(stored) == []


def test_policy_row_without_a_compiled_form_is_read_as_text(store: Store) -> None:
    store.policies.put(NAME, GOOD, digest(GOOD), None)
    assert _stored(store).compiled is None
    assert _modules(_stored(store)) == ["yaml", "chalicelib.policy.load"]


def test_the_same_document_again_stores_the_compiled_form_that_is_missing(
    store: Store, document: Path, capsys: Said
) -> None:
    store.policies.put(NAME, GOOD, digest(GOOD), None)
    assert main(["apply", "--dry-run", str(document)]) == 0
    assert _stored(store).compiled is None
    assert main(["apply", str(document)]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == f"{NAME}: unchanged, version 1"
    assert _stored(store).compiled == _form()


def test_policy_text_with_other_line_ends_does_not_get_the_compiled_form(
    store: Store, document: Path
) -> None:
    text = GOOD.replace("\n", "\r\n")
    store.policies.put(NAME, text, digest(text), None)
    assert main(["apply", str(document)]) == 0
    assert (_stored(store).text, _stored(store).compiled) == (text, None)


def test_newer_policy_version_keeps_its_own_compiled_form(store: Store) -> None:
    store.policies.put(NAME, GOOD, "one", None)
    before = _stored(store)
    store.policies.put(NAME, f"# two\n{GOOD}", "two", 1)
    assert store.policies.compile_again(before, _form()) is False
    assert (_stored(store).version, _stored(store).compiled) == (2, None)


def test_compiled_policy_too_large_for_the_row_is_omitted(store: Store) -> None:
    text = f"{GOOD}#{'x' * (FITTING - len(GOOD) - 40)}\n"
    store.policies.put(NAME, text, digest(text), None, compiled=b"x" * 100)
    assert _stored(store).compiled is None
    assert _stored(store).text == text


def test_release_without_compiled_policies_reads_the_policy_row(store: Store) -> None:
    store.policies.put(NAME, GOOD, "d", None, compiled=_form())
    row = store.policies._table.get(OldPolicyRow, POLICIES, NAME)
    assert row is not None
    assert (row.text, row.digest, int(row.version)) == (GOOD, "d", 1)


@pytest.mark.parametrize(
    "bend",
    [
        lambda form: form[:-5],
        lambda form: form[:60] + b"\0\0\0\0" + form[64:],
        lambda _: _form(f"# of another cluster\n{GOOD}"),
    ],
    ids=["cut", "bent", "swapped"],
)
def test_broken_compiled_policy_is_reported_once_and_the_text_is_used(
    bend: object, store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    assert callable(bend)
    store.policies.put(NAME, GOOD, "d", None, compiled=bend(_form()))
    active_policy.read.cache_clear()
    for _ in range(3):
        assert active_policy.in_force(_stored(store), 0.0).name == NAME
    assert [record.message for record in caplog.records] == [
        "compiled policy not used; parsing the text"
    ]


def test_compiled_policy_secret_of_another_cluster_is_refused_with_its_line(store: Store) -> None:
    store.policies.put("thief", GOOD, "d", None, compiled=_form())
    with pytest.raises(
        Exception, match=r"policy thief, version 1:6: spec\.kubernetes\.kubeconfigSecret"
    ):
        active_policy.in_force(_stored(store, "thief"), 0.0)
