"""Bootstrap tokens for new machines: from a secret, or created in the cluster itself.

Tokens are created in the emulated API server, through the real client, with the
rights of the shipped Role.
"""

from __future__ import annotations

import base64
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from chalicelib.cluster.client import KubeClient
from chalicelib.cluster.credentials import KubeCredential
from chalicelib.model.errors import BadInput, OutscalerError
from chalicelib.model.secret import Secret, SecretUnavailable
from chalicelib.model.timestamps import parse_time
from chalicelib.policy.vendors.cherryservers import Bootstrap
from chalicelib.providers.cherryservers.tokens import GROUPS, IDS, LABEL, Tokens, open_tokens
from chalicelib.providers.kit.base import Connection
from chalicelib.providers.kit.errors import Conflict, ProviderError, Transient, Unauthorized
from infra.emulators.kube.auth import MASTERS, RbacRule, User
from infra.emulators.kube.faults import KubeFault
from infra.emulators.kube.in_process_transport import DirectLine
from infra.emulators.kube.server import ApiServer
from infra.emulators.kube.store import ObjectStore
from tests.cases import each_row
from tests.providers.cherryservers.config_documents import settings

ROLE = Path(__file__).resolve().parents[3] / "infra" / "kubernetes" / "rbac-bootstrap-tokens.yaml"
OURS = "system:serviceaccount:kube-system:outscaler"
START = 1_800_000_000.0
HOUR = 3600.0


def granted() -> list[RbacRule]:
    [role] = (each for each in yaml.safe_load_all(ROLE.read_text()) if each["kind"] == "Role")
    return [
        RbacRule(
            verbs=tuple(rule["verbs"]),
            groups=("",),
            resources=tuple(rule["resources"]),
            namespaces=(role["metadata"]["namespace"],),
            names=tuple(rule.get("resourceNames", ())),
        )
        for rule in role["rules"]
    ]


class Login:
    """A service account's token that never changes."""

    def __init__(self, server: ApiServer, token: str) -> None:
        self._credential = KubeCredential(server.url, token=Secret(token))

    def current(self) -> KubeCredential:
        return self._credential

    def renew(self) -> None:
        pass


class There:
    """A cluster, and the access that one of our functions has to it."""

    def __init__(self, *, may: bool = True) -> None:
        self.now = START
        self.store = ObjectStore(lambda: self.now)
        self.store.create("namespaces", {"metadata": {"name": "kube-system"}})
        users = (User("admin", "admin-token", (MASTERS,)), User(OURS, "our-token"))
        self.server = ApiServer(self.store, users=users, rbac={OURS: granted() if may else []})
        self.server.stay_inside()
        self.line = DirectLine(self.server, lambda seconds: None)
        self.asked: list[str] = []
        self.line.ask = self._ask
        self.fault: Callable[[str, str], KubeFault | None] = lambda method, target: None
        self.drawn = (f"{number:016d}" for number in itertools.count(1))
        login = Login(self.server, "our-token")
        self.kube = KubeClient(
            login, sleep=lambda seconds: None, jitter=lambda: 0.5, dial=self.line.dial
        )

    def _ask(self, method: str, target: str) -> KubeFault | None:
        self.asked.append(f"{method} {target.rpartition('/')[2]}")
        return self.fault(method, target)

    def tokens(self, lifetime: float = 2 * HOUR) -> Tokens:
        """Returns the token source of a new function."""
        return opened(
            Bootstrap(create=True, lifetime=lifetime),
            kube=self.kube,
            now=lambda: self.now,
            draw=lambda: next(self.drawn),
        )

    def secrets(self) -> dict[str, dict[str, str]]:
        """Returns name -> data, decoded."""
        listed = self.store.list("secrets", "kube-system")
        return {
            each["metadata"]["name"]: {
                key: base64.b64decode(text).decode() for key, text in each["data"].items()
            }
            for each in listed
        }


def opened(
    bootstrap: Bootstrap,
    *,
    read: Callable[[str], str] = str,
    kube: object | None = None,
    now: Callable[[], float] = lambda: START,
    draw: Callable[[], str] = str,
) -> Tokens:
    connection = Connection(
        cluster="prod", settings={}, groups=(), read_secret=read, kube=kube, now=now
    )
    return open_tokens(connection, settings("x", bootstrap=bootstrap), draw=draw)


@pytest.fixture
def there() -> Iterator[There]:
    found = There()
    yield found
    found.kube.close()


def test_bootstrap_token_has_the_form_kubernetes_requires(there: There) -> None:
    token = there.tokens().current()
    [(name, data)] = there.secrets().items()
    assert name == f"bootstrap-token-{token.id}"
    assert (
        data.pop("description")
        == "Made by Outscaler for new machines of cluster prod; ends by itself."
    )
    assert parse_time(data.pop("expiration")) == START + 2 * HOUR
    assert data == {
        "token-id": token.id,
        "token-secret": token.secret.reveal(),
        "auth-extra-groups": GROUPS,
        "usage-bootstrap-authentication": "true",
        "usage-bootstrap-signing": "true",
    }
    secret = there.store.get("secrets", name, "kube-system")
    assert secret is not None
    assert (secret["type"], secret["metadata"]["labels"]) == (
        "bootstrap.kubernetes.io/token",
        {LABEL: "true"},
    )


def test_bootstrap_hundred_orders_share_a_few_tokens(there: There) -> None:
    made, lasting = set(), []
    for minute in range(0, 600, 6):
        there.now = START + 60.0 * minute
        token = there.tokens().current()
        made.add(token.secret.reveal())
        ends = there.secrets()[f"bootstrap-token-{token.id}"]["expiration"]
        lasting.append(parse_time(ends) - there.now)
    assert len(made) == 10  # in ten hours: one per hour
    assert min(lasting) >= HOUR  # every machine has that long to join
    assert len(there.secrets()) <= len(IDS)
    assert "GET secrets" not in there.asked  # never a list


def test_bootstrap_expired_token_that_was_not_cleaned_up_is_overwritten(there: There) -> None:
    for _ in range(12):
        token = there.tokens().current()
        alive = {
            data["token-secret"]
            for data in there.secrets().values()
            if parse_time(data["expiration"]) > there.now
        }
        assert token.secret.reveal() in alive
        there.now += HOUR + 1
    assert set(there.secrets()) <= {f"bootstrap-token-{name}" for name in IDS}


def test_bootstrap_token_of_a_booting_machine_is_never_overwritten(there: There) -> None:
    seen: dict[str, float] = {}
    for step in range(200):
        # the clock goes back once
        there.now = START + 600.0 * step - (5 * HOUR if step > 100 else 0)
        token = there.tokens(lifetime=(2 if step % 3 else 1) * HOUR).current()
        data = {
            each["token-secret"]: parse_time(each["expiration"])
            for each in there.secrets().values()
        }
        assert all(secret in data for secret, ends in seen.items() if ends > there.now)
        seen = data
        assert data[token.secret.reveal()] > there.now


def test_bootstrap_tokens_may_be_deleted_by_the_clusters_cleaner(there: There) -> None:
    first = there.tokens().current()
    there.store.delete("secrets", f"bootstrap-token-{first.id}", "kube-system")
    assert there.tokens().current().secret != first.secret


def test_bootstrap_concurrent_functions_share_one_token(there: There) -> None:
    """The second function creates its token between our read and our write."""
    others: list[str] = []

    def once(method: str, target: str) -> KubeFault | None:
        if method == "POST" and not others:
            others.append("")
            others[0] = there.tokens().current().secret.reveal()
        return None

    there.fault = once
    assert there.tokens().current().secret.reveal() == others[0]
    assert len(there.secrets()) == 1


def test_bootstrap_token_with_a_lost_answer_is_found_by_the_next_attempt(there: There) -> None:
    there.fault = lambda method, target: (
        KubeFault(close=True, late=True) if method == "POST" else None
    )
    with pytest.raises(Transient):
        there.tokens().current()
    there.fault = lambda method, target: None
    token = there.tokens().current()
    assert [data["token-secret"] for data in there.secrets().values()] == [token.secret.reveal()]


def foreign(name: str, **changed: Any) -> dict[str, Any]:
    data = {
        "token-id": name,
        "token-secret": "x" * 16,
        "expiration": "2030-01-01T00:00:00Z",
        "usage-bootstrap-authentication": "true",
    }
    labels = changed.pop("labels", {LABEL: "true"})
    type_ = changed.pop("type", "bootstrap.kubernetes.io/token")
    return {
        "metadata": {
            "name": f"bootstrap-token-{name}",
            "namespace": "kube-system",
            "labels": labels,
        },
        "type": type_,
        "data": {
            key: base64.b64encode(text.encode()).decode() for key, text in (data | changed).items()
        },
    }


@pytest.mark.parametrize("changed", [{"labels": {}}, {"type": "Opaque"}])
def test_bootstrap_secret_of_another_owner_is_untouched(
    there: There, changed: dict[str, Any]
) -> None:
    there.store.create("secrets", foreign(IDS[0], **changed))
    assert there.tokens().current().id == IDS[1]
    assert there.secrets()[f"bootstrap-token-{IDS[0]}"]["token-secret"] == "x" * 16


def test_bootstrap_four_foreign_secrets_need_an_operator(there: There) -> None:
    for name in IDS:
        there.store.create("secrets", foreign(name, labels={}))
    with pytest.raises(Conflict) as raised:
        there.tokens().current()
    assert "none of the Secrets bootstrap-token-outsc0" in raised.value.message


@pytest.mark.parametrize(
    "changed",
    [
        {"token-secret": "short"},
        {"token-id": "other1"},
        {"expiration": "soon"},
        {"expiration": ""},
        {"usage-bootstrap-authentication": "false"},
        {"token-secret": "X" * 16},
    ],
)
def test_bootstrap_corrupted_token_of_ours_is_created_again(
    there: There, changed: dict[str, Any]
) -> None:
    for name in IDS:
        there.store.create("secrets", foreign(name, **changed))
    assert there.tokens().current().secret.reveal() == "0000000000000001"


def test_bootstrap_missing_role_is_reported_with_the_file_to_apply() -> None:
    there = There(may=False)
    with pytest.raises(Unauthorized) as raised:
        there.tokens().current()
    assert "outscaler manifests rbac-bootstrap-tokens | kubectl apply -f -" in raised.value.message
    there.kube.close()


@pytest.mark.parametrize(
    ("status", "cls"), [(500, Transient), (422, ProviderError), (429, ProviderError)]
)
def test_bootstrap_server_error_does_not_show_the_token(
    there: There,
    status: int,
    cls: type[ProviderError],
) -> None:
    encoded = base64.b64encode(b"0000000000000001").decode()
    text = (
        f'{{"kind": "Status", "message": "refused 0000000000000001 {encoded}", "code": {status}}}'
    )
    there.fault = lambda method, target: (
        KubeFault(status=status, body=text.encode()) if method == "POST" else None
    )
    with pytest.raises(cls) as raised:
        there.tokens().current()
    assert "refused *** ***" in raised.value.message
    assert "0000000000000001" not in repr(raised.value)


def test_bootstrap_proxy_page_instead_of_a_secret_is_an_error(there: There) -> None:
    there.fault = lambda method, target: (
        KubeFault(status=200, body=b"<html>") if method == "GET" else None
    )
    with pytest.raises(Transient):
        there.tokens().current()


def test_bootstrap_token_in_a_secret_is_read_each_time() -> None:
    class Reader:
        texts = iter(["nf8atf.kwfs1t15pjmhk7n4", "nf8atg.kwfs1t15pjmhk7n5"])

        def __call__(self, name: str) -> str:
            raise AssertionError("what was kept is asked for")

        def fresh(self, name: str) -> str:
            assert name == "token"
            return next(self.texts)

    tokens = opened(Bootstrap(secret="token"), read=Reader())
    assert [tokens.current().id for _ in range(2)] == ["nf8atf", "nf8atg"]


@each_row(
    ("error", "cls"),
    [
        (BadInput("secret token", "does not exist"), Unauthorized),
        (SecretUnavailable("no answer"), Transient),
        (OutscalerError("?"), Transient),
    ],
)
def test_bootstrap_unreadable_secret_is_an_error_of_the_call(
    error: OutscalerError, cls: type[ProviderError]
) -> None:
    def read(name: str) -> str:
        raise error

    with pytest.raises(cls):
        opened(Bootstrap(secret="token"), read=read).current()


def test_bootstrap_invalid_secret_is_unauthorized_and_not_shown() -> None:
    with pytest.raises(Unauthorized) as raised:
        opened(Bootstrap(secret="token"), read=lambda name: "hunter2").current()
    assert "hunter2" not in str(raised.value)


@each_row(
    ("bootstrap", "setting"),
    [
        (Bootstrap(), "bootstrapTokenSecret"),
        (Bootstrap(create=True), "createBootstrapTokens"),
    ],
)
def test_bootstrap_impossible_token_source_names_the_setting(
    bootstrap: Bootstrap, setting: str
) -> None:
    with pytest.raises(Unauthorized) as raised:
        opened(bootstrap).current()
    assert f"providers.cherryservers.{setting}: " in raised.value.message
