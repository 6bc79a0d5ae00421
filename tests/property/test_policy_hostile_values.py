"""Every text field of a policy with hostile texts: the document is a policy or a mistake of
its author, in the reader, in the compiled form and in the providers that read their
settings; never another error."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chalicelib.model.errors import BadInput
from chalicelib.policy.compiled import compiled
from chalicelib.policy.document import json_schema
from chalicelib.policy.load import load
from chalicelib.policy.secret_names import named_by
from chalicelib.policy.settings.cluster_policy import Policy
from chalicelib.policy.vendors.cherryservers import read_settings as cherryservers
from chalicelib.policy.vendors.exoscale import read_settings as exoscale
from chalicelib.policy.vendors.huaweicloud import read_settings as huaweicloud
from chalicelib.providers.alicloud.settings import read_settings as alicloud
from chalicelib.providers.clusterapi.settings import read_settings as clusterapi
from chalicelib.runtime.active_policy import instant
from chalicelib.runtime.mode_guard import permitted
from tests.amounts import examples

NOW = 1_795_000_000.0
HOSTILE = (
    "https://[::1",
    "https://[",
    "https://]",
    "https://[::1]:99999",
    "https://x:٣",
    "https://x:-1/",
    "https://\u2100.example",
    "https://[v1.x]/",
    "http://[fe80::1%25eth0]/",
    "//",
    "",
    " ",
    "\u00a0",
    "\x00",
    "\ud800",
    "\u2028",
    "a" * 5000,
    "9" * 5000,
    "-" + "9" * 400,
    "1e400",
    "nan",
    "١٢",
    "²",
    "1_0",
    "(" * 2000,
    "(a+)+$",
    "[z-a]",
    "*{9999999999}",
    "../../etc/passwd",
    "Europe/../../etc/passwd",
    "/etc/localtime",
    "Zone/\x00",
    "* * * * * * *",
    "99 99 99 99 99",
    "*/0 * * * *",
    "1-9999999999 * * * *",
    "10:5:x",
    "٣:٤:x",
    "1:2:",
    "0x10",
    "=,=",
    "a=b:NoSuch",
    "1000000h",
    "1e9999s",
    "256.256.256.256/99",
    "fe80::%",
    "arn:aws:::::",
    "ssm:/",
    "${x}",
    "{{x}}",
    "%",
    "%zz",
)
Path = tuple[str | int, ...]


def _paths(schema: Mapping[str, Any], at: Path = ()) -> Iterator[Path]:
    """Every place of the document that may hold a text; 0 stands for the first entry of a list."""
    for form in (schema, *schema.get("anyOf", ())):
        kinds = form.get("type", ())
        if "string" in (kinds, *(kinds if isinstance(kinds, list) else ())) or "enum" in form:
            yield at
        for key, inner in form.get("properties", {}).items():
            yield from _paths(inner, (*at, key))
        if isinstance(form.get("items"), dict):
            yield from _paths(form["items"], (*at, 0))


PATHS = sorted(dict.fromkeys(_paths(json_schema())), key=str)
"""Places of texts in a policy."""

_PROVIDERS = {
    "alicloud": {"region": "cn-hangzhou", "credentialsSecret": "outscaler/a/alicloud"},
    "cherryservers": {"projectId": "1", "credentialsSecret": "outscaler/a/cherryservers"},
    "clusterapi": {"namespace": "capi"},
    "exoscale": {"zone": "ch-gva-2", "credentialsSecret": "outscaler/a/exoscale"},
    "huaweicloud": {"region": "eu-west-101", "credentialsSecret": "outscaler/a/huaweicloud"},
}
_READERS: Mapping[str, Any] = {
    "alicloud": alicloud,
    "cherryservers": cherryservers,
    "clusterapi": lambda values, groups: clusterapi(values),
    "exoscale": exoscale,
    "huaweicloud": huaweicloud,
}
_ENTRIES: Mapping[str, dict[str, Any]] = {
    "nodeGroups": {"provider": "clusterapi", "id": "workers", "min": 1, "max": 9},
    "rules": {
        "name": "a",
        "groups": ["workers"],
        "cron": "47 20 * * *",
        "timeZone": "UTC",
        "add": 3,
    },
    "schedules": {"name": "a", "cron": "0 20 * * *", "duration": "10h", "mode": "shadow"},
    "maintenanceWindows": {"cron": "0 20 * * *", "duration": "10h"},
    "headroom": {"name": "a", "cpu": "1"},
    "notifications": {
        "webhook": {"url": "https://hooks.example.org/x", "secret": "outscaler/a/notifications"},
        "quietHours": [{"cron": "0 20 * * *", "duration": "10h"}],
    },
    "webhook": {"secret": "outscaler/a/webhook"},
}


def _document(path: Path, text: str) -> str:
    """A valid document with this text at that place."""
    provider = str(path[2]) if path[:2] == ("spec", "providers") else "clusterapi"
    base: dict[str, Any] = {
        "apiVersion": "outscaler.dev/v1",
        "kind": "Cluster",
        "metadata": {"name": "a"},
        "spec": {
            "kubernetes": {"kubeconfigSecret": "outscaler/a/kubeconfig"},
            "providers": {provider: dict(_PROVIDERS[provider])},
        },
    }
    if len(path) > 2 and path[1] in _ENTRIES:
        entry = json.loads(json.dumps(_ENTRIES[str(path[1])]))
        base["spec"][path[1]] = [entry] if path[2] == 0 else entry
    here: Any = base
    step: Any
    for step, following in zip(path, (*path[1:], None), strict=True):
        if isinstance(here, list) and not here:
            here.append(None)
        if following is None:
            here[step] = text
            break
        inner = here[step] if isinstance(here, list) or step in here else None
        if not isinstance(inner, list if following == 0 else dict):
            here[step] = [] if following == 0 else {}
        here = here[step]
    return json.dumps(base, ensure_ascii=True)


def _use(policy: Policy, text: str) -> None:
    """What functions do with a policy before they contact anything."""
    form = compiled(policy, text)
    assert form is not None
    assert permitted(instant(policy, NOW)).word
    assert all(isinstance(name, str) for _, name, _ in named_by(policy))
    for provider, values in policy.providers.items():
        try:
            _READERS[provider](values, policy.node_groups)
        except BadInput:
            continue


def _check(path: Path, text: str) -> bool:
    """Whether the document was accepted. Raises what a reader must not raise."""
    document = _document(path, text)
    try:
        policy, _ = load(document, place="p.yaml")
    except BadInput:
        return False
    _use(policy, document)
    return True


def test_every_text_field_of_a_policy_is_known() -> None:
    assert len(PATHS) > 150
    assert ("spec", "notifications", "webhook", "url") in PATHS
    assert ("spec", "providers", "huaweicloud", "cceEndpoint") in PATHS


@pytest.mark.more
def test_hostile_texts_in_every_field_are_read_or_refused() -> None:
    # A share of the texts for each field: neighbours in the list are variations of one text.
    every = examples(9, 3)
    results = [
        _check(path, text)
        for number, path in enumerate(PATHS)
        for text in HOSTILE[number % every :: every]
    ]
    assert results.count(False) > len(PATHS)


def test_addresses_that_cannot_be_split_are_refused_with_their_place() -> None:
    path = ("spec", "notifications", "webhook", "url")
    for url in (
        "https://[::1",
        "https://]",
        "https://x:99999",
        "https://x:0",
        "https://a\u2100b.example",
    ):
        with pytest.raises(BadInput, match=r"webhook\.url.*is not an HTTPS address"):
            load(_document(path, url), place="p.yaml")


@pytest.mark.more
@settings(max_examples=examples(150, 400), deadline=None, derandomize=True)
@given(
    st.sampled_from(PATHS),
    st.one_of(st.text(max_size=60), st.sampled_from(HOSTILE), st.from_regex(r"\w+://.{0,30}")),
)
def test_any_text_in_any_field_is_read_or_refused(path: Path, text: str) -> None:
    _check(path, text)
