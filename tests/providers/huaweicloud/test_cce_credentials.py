"""Access keys over HTTP: temporary keys of an agency, renewed before their expiry and never
shown.
"""

from __future__ import annotations

import io
import logging

import pytest

from chalicelib.model.operation import OperationKind
from chalicelib.model.outcome import Succeeded
from chalicelib.providers.kit.errors import Unauthorized
from infra.emulators.vendor_common.fault_injection import VendorFault
from tests.providers.huaweicloud.fixture import HuaweiBench, drive, order, seen, shared_cache, tried

AGENCY = {"agencyName": "scaler", "agencyDomain": "partner", "agencyDuration": "900"}


def with_agency(bench: HuaweiBench) -> str:
    """A group, read with temporary keys; its id."""
    bench.shared_cache = shared_cache(bench)
    bench.settings |= AGENCY
    bench.server.ring.add_agency("partner", "scaler", bench.key.id)
    return bench.add_group("a", size=2)


def asked(bench: HuaweiBench) -> list[str]:
    return [call.operation for call in bench.look() if call.operation == "assume-agency"]


def test_CCE_17_temporary_keys_are_requested_once_and_renewed_before_expiry(
    bench: HuaweiBench,
) -> None:
    group = with_agency(bench)
    assert seen(bench, group).target == 2
    assert len(asked(bench)) == 1
    signed = {call.key for call in bench.server.log if call.operation == "list-pools"}
    assert signed == {"HSTEXAMPLE000001"}
    bench.clock.advance(900.0 - 301.0)  # five minutes are left
    assert seen(bench, group).target == 2
    assert len(asked(bench)) == 1
    assert {call.status for call in bench.server.log} <= {200, 201}


@pytest.mark.parametrize("fault", [VendorFault.EXPIRED_TOKEN, VendorFault.UNAUTHORIZED])
def test_CCE_17_refused_temporary_keys_are_replaced_once(
    bench: HuaweiBench, fault: VendorFault
) -> None:
    group = with_agency(bench)
    seen(bench, group)
    bench.look()
    bench.server.faults.next(fault, on="list-pools")
    assert seen(bench, group).target == 2
    assert len(asked(bench)) == 1
    bench.server.faults.next(fault, on="list-pools", times=-1)
    with pytest.raises(Unauthorized):
        seen(bench, group)


def test_huawei_agency_that_does_not_trust_the_key_is_reported(bench: HuaweiBench) -> None:
    with_agency(bench)
    bench.server.ring.agencies["partner", "scaler"].trusts = frozenset()
    with pytest.raises(Unauthorized):
        bench.provider().observe(bench.nodes())


def test_huawei_project_is_looked_up_where_the_policy_omits_it(bench: HuaweiBench) -> None:
    bench.shared_cache = shared_cache(bench)
    bench.settings["projectId"] = ""
    group = bench.add_group("a", size=1)
    assert seen(bench, group).target == 1
    assert seen(bench, group).target == 1
    assert [call.operation for call in bench.look()].count("list-projects") == 1


def test_huawei_no_key_token_or_signature_is_ever_shown(bench: HuaweiBench) -> None:
    heard = io.StringIO()
    handler, root = logging.StreamHandler(heard), logging.getLogger()
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    try:
        group = with_agency(bench)
        said: list[object] = [
            seen(bench, group),
            bench.provider(),
            bench.provider().observe(bench.nodes()),
        ]
        for fault in (
            VendorFault.UNAUTHORIZED,
            VendorFault.FORBIDDEN,
            VendorFault.SERVER_ERROR,
            VendorFault.CUT_OFF,
            VendorFault.HANGS_UP,
        ):
            bench.server.faults.next(fault, times=3)
            said.append(tried(bench, order(bench, OperationKind.SCALE_UP, group, 2, 3)))
            bench.server.faults.clear()
        said.append(drive(bench, order(bench, OperationKind.SCALE_UP, group, 2, 3)))
    finally:
        root.removeHandler(handler)
        root.setLevel(level)
    assert isinstance(said[-1], Succeeded)
    shown = heard.getvalue() + " ".join(f"{each!r} {each}" for each in said)
    assert bench.server.front.seen
    assert len(bench.secrets()) > 5
    assert not [text for text in bench.secrets() if text in shown]
