"""User data of instances often contain a join token. The vendor sends them with
templates; decoding drops them.
"""

from __future__ import annotations

import logging

import pytest

from chalicelib.providers.kit.errors import ProviderError
from infra.emulators.vendor_common.http_messages import Answer, scripted
from tests.cases import each_row
from tests.providers.alicloud.emulated import answering
from tests.providers.emulated import KeptCache

HIDDEN = "aGlkZGVuLXdvcmQtaW4tdXNlci1kYXRh"
TEMPLATE = {
    "VersionNumber": 2,
    "LaunchTemplateId": "lt-1",
    "LaunchTemplateData": {
        "InstanceType": "ecs.two",
        "UserData": HIDDEN,
        "PasswordInherit": True,
        "SystemDisk": {"Size": 80},
    },
}
CONFIGURATION = {"ScalingConfigurationId": "asc-1", "InstanceType": "ecs.two", "UserData": HIDDEN}


def versions(found: object) -> Answer:
    return scripted(
        200, {"TotalCount": 1, "LaunchTemplateVersionSets": {"LaunchTemplateVersionSet": [found]}}
    )


def configurations(found: object) -> Answer:
    return scripted(
        200, {"TotalCount": 1, "PageNumber": 1, "PageSize": 50, "ScalingConfigurations": [found]}
    )


def test_alicloud_template_user_data_are_neither_kept_nor_stored_nor_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    cache = KeptCache()
    ess = answering(versions(TEMPLATE), configurations(CONFIGURATION))
    with caplog.at_level(logging.DEBUG):
        api = ess.api(cache=cache)
        found = (api.launch_template("lt-1", "2"), api.configurations(["asc-1"]))
    assert "ecs.two" in repr(found)
    assert cache.rows
    assert HIDDEN not in repr(found) + repr(cache.rows) + caplog.text


@each_row(
    "reply",
    [
        versions({**TEMPLATE, "VersionNumber": HIDDEN}),
        versions(HIDDEN),
        versions(
            {**TEMPLATE, "LaunchTemplateData": {"UserData": HIDDEN, "InstanceType": [HIDDEN]}}
        ),
        scripted(200, f'{{"TotalCount": 1, "UserData": "{HIDDEN}"'),
        scripted(200, HIDDEN, {"Content-Type": "text/plain"}),
        scripted(403, HIDDEN, {"Content-Type": "text/plain"}),
    ],
)
def test_alicloud_template_user_data_of_a_malformed_answer_are_in_no_error(reply: Answer) -> None:
    ess = answering(lambda _: reply)
    with pytest.raises(ProviderError) as caught:
        ess.api().launch_template("lt-1", "2")
    assert HIDDEN not in f"{caught.value} {caught.value!r} {vars(caught.value)}"
