"""Credentials: refused ones are reported, new ones are read, and none is ever shown.

conftest.py searches the output of every test of the suite for secrets; these tests provoke
the riskiest situations.
"""

from __future__ import annotations

import pytest

from chalicelib.model.outcome import Succeeded
from chalicelib.providers.kit.errors import ProviderError, Unauthorized
from tests.providers.suite.operations import OperationDriver, class_of
from tests.providers.suite.recording_provider import RecordingProvider


def test_secret_check_of_the_suite_detects_a_secret(yard: OperationDriver) -> None:
    secrets = [secret for secret in yard.bench.secrets() if secret]
    assert secrets
    yard.ear.hear(ValueError(f"the key is {secrets[0]}, as it were"))
    leaked = yard.ear.leaked(secrets)
    yard.ear.texts.clear()
    assert leaked
    assert secrets[0] not in leaked[0]


def test_provider_wrong_credential_is_unauthorized_and_changes_nothing(
    yard: OperationDriver,
) -> None:
    group = yard.bench.add_group("g", size=2)
    order, victim = yard.growth(group, 3), yard.instances(group)[0]
    removal = yard.removal(group, victim)
    yard.bench.calls()
    with pytest.raises(Unauthorized):
        yard.provider("wrong").observe(yard.bench.nodes())
    assert len(yard.bench.calls()) <= 4
    wrong = [yard.provider("wrong") for _ in range(2)]
    answers = [
        yard.ask(lambda _: wrong[0].scale_up(order)),
        yard.ask(lambda _: wrong[1].delete_nodes(removal)),
    ]
    assert [class_of(answer) for answer in answers] == ["Unauthorized"] * 2
    assert (yard.bench.target(group), len(yard.finish(group))) == (2, 2)


def test_provider_reads_a_credential_rotated_during_a_pass(yard: OperationDriver) -> None:
    group = yard.bench.add_group("g", size=2)
    order = yard.growth(group, 3)
    provider = yard.provider()
    assert len(provider.observe(yard.bench.nodes()).groups) == 1
    yard.provider("rotated")
    assert len(provider.observe(yard.bench.nodes()).groups) == 1
    yard.ask(lambda _: provider.scale_up(order))
    assert isinstance(yard.run(order), Succeeded)
    assert (yard.bench.target(group), len(yard.finish(group))) == (3, 3)


def test_provider_reads_a_credential_rotated_during_a_removal(yard: OperationDriver) -> None:
    group = yard.bench.add_group("g", size=3)
    before, victim = yard.bench.machines(group), yard.instances(group)[0]
    order = yard.removal(group, victim)
    provider = yard.provider()
    provider.observe(yard.bench.nodes())
    yard.provider("rotated")
    yard.ask(lambda _: provider.delete_nodes(order))
    assert isinstance(yard.drive(order), Succeeded)
    assert (yard.bench.target(group), yard.finish(group)) == (2, before[1:])


def test_provider_sends_no_credential_to_an_unverified_server(yard: OperationDriver) -> None:
    yard.needs("tls")
    group = yard.bench.add_group("g", size=1)
    order = yard.growth(group, 2)
    yard.bench.calls()
    provider = RecordingProvider(yard.bench.untrusted(), yard.ear)
    with pytest.raises(ProviderError) as raised:
        provider.observe(yard.bench.nodes())
    assert raised.value.error_class == "Transient"
    with pytest.raises(ProviderError) as raised:
        provider.scale_up(order)
    assert raised.value.error_class == "Transient"
    assert not yard.bench.calls()
    assert yard.bench.target(group) == 1
