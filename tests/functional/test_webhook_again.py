"""A request that was not served may be sent again, byte for byte; one that was served may not."""

from __future__ import annotations

import dataclasses
from concurrent.futures import ThreadPoolExecutor

import pytest

from chalicelib.handlers.http_response import HttpError
from chalicelib.handlers.webhook import handler
from chalicelib.runtime.runtime import install
from chalicelib.store import Store
from infra.emulators.aws_faults import AwsFaults, lost_answer
from tests.functional.app_client import AppClient, sample

BODY = sample("core-v1-failed-scheduling")
UNINTERESTING = BODY.replace(b"FailedScheduling", b"Pulled")


@pytest.fixture
def faults(desk: AppClient) -> AwsFaults:
    """Faults of the table, from here on."""
    script = AwsFaults()
    store = Store(
        desk.store.table.name,
        clock=desk.clock,
        sleep=desk.clock.advance,
        client=desk.store.table.client,
        wrap=script.wrap,
    )
    install(dataclasses.replace(desk.runtime, store=store))
    return script


def test_what_the_queue_refused_may_be_sent_again_and_then_counts_once(desk: AppClient) -> None:
    name = desk.cluster()
    headers = desk.signed(name, BODY)
    desk.outbox.full.add("reconcile")
    assert desk.post(name, BODY, headers).status_code == 503
    desk.outbox.full.clear()
    again = desk.post(name, BODY, headers)
    assert (again.status_code, again.json_body["woken"]) == (202, True)
    assert desk.post(name, BODY, headers).status_code == 401
    assert len(desk.outbox.scans()) == 1


def test_a_window_whose_row_was_written_but_not_confirmed_swallows_no_event(desk: AppClient, faults: AwsFaults) -> None:
    name = desk.cluster()
    headers = desk.signed(name, BODY)
    faults.after("put_item", lost_answer())
    assert desk.post(name, BODY, headers).status_code == 503
    again = desk.post(name, BODY, headers)
    assert (again.status_code, again.json_body["woken"]) == (202, True)
    assert desk.post(name, BODY, headers).status_code == 401


def test_a_signature_that_was_written_but_not_confirmed_may_be_used_again(desk: AppClient, faults: AwsFaults) -> None:
    name = desk.cluster()
    headers = desk.signed(name, UNINTERESTING)
    faults.after("put_item", lost_answer())
    assert desk.post(name, UNINTERESTING, headers).status_code == 503
    assert desk.post(name, UNINTERESTING, headers).status_code == 202
    assert desk.post(name, UNINTERESTING, headers).status_code == 401


def test_a_table_that_refuses_everything_after_the_first_look_leaves_nothing_behind(
    desk: AppClient, faults: AwsFaults
) -> None:
    name = desk.cluster()
    headers = desk.signed(name, BODY)
    faults.instead("put_item", lost_answer())
    faults.instead("delete_item", lost_answer())
    assert desk.post(name, BODY, headers).status_code == 503
    again = desk.post(name, BODY, headers)
    assert (again.status_code, again.json_body["woken"]) == (202, True)


def test_the_same_request_many_times_at_once_is_served_once(desk: AppClient) -> None:
    name = desk.cluster()
    headers = desk.signed(name, BODY)

    def status(_: int) -> int:
        try:
            return handler.handle(name, headers, BODY, desk.runtime).status
        except HttpError as refused:
            return refused.status

    with ThreadPoolExecutor(4) as callers:
        answers = sorted(callers.map(status, range(8)))
    assert answers == [202] + [401] * 7
    assert len(desk.outbox.scans()) == 1
