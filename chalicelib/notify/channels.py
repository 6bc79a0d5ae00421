"""Builds what notifications leave by, from the runtime of a function or a command."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from typing import Protocol

from chalicelib.aws.sns import Publisher, TopicPublisher
from chalicelib.model.policy_permissions import Deployment
from chalicelib.model.resource_names import state_table
from chalicelib.notify.delivery import Channels, Poster
from chalicelib.notify.webhook import WebhookSender, permitted
from chalicelib.policy.secret_names import NOTIFICATIONS, ClusterSecrets

_TABLE = re.compile(r"(?P<stack>.+)-state\Z")


class NoticeRuntime(Protocol):
    """The fields of the Runtime that are used here."""

    @property
    def read_secret(self) -> Callable[[str], str]:
        """The text of a secret."""

    @property
    def deployment(self) -> Deployment:
        """What policies may name."""

    @property
    def topics(self) -> Publisher | None:
        """What publishes to topics; None: SNS."""


def channels_of(runtime: NoticeRuntime, stack: str = "", poster: Poster | None = None) -> Callable[[str], Channels]:
    """Return the channels of each cluster, by its name. stack: the deployment's name, by its table unless given."""
    name = stack or stack_of(state_table(os.environ))
    topics = runtime.topics or TopicPublisher()
    address = poster or WebhookSender(permitted(runtime.deployment.loopback))

    def made(cluster: str) -> Channels:
        secrets = ClusterSecrets(runtime.read_secret, cluster, (NOTIFICATIONS,), runtime.deployment)
        return Channels(cluster, name, topics, address, secrets)

    return made


def stack_of(table: str) -> str:
    """Return the deployment's name in the source of events: its table's, without `-state`."""
    found = _TABLE.match(table)
    return found["stack"] if found is not None else table or "outscaler"
