"""Records of an emulated Cherry Servers account: plans, regions, keys and servers.

Only the account (account.py) and the setup of tests change them. serializers.py converts them to
responses. Times are epoch seconds of the given clock; ids are numbers as the vendor has them.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec

PENDING, PROVISIONING, ACTIVE, TERMINATING = "pending", "provisioning", "active", "terminating"
DEPLOYING, DEPLOYED, FAILED = "deploying", "deployed", "failed deployment"
NEVER = float("inf")


class CherryDurations(msgspec.Struct, frozen=True):
    """Durations in seconds: until an order is processed, until a bare metal or virtual server is
    deployed, until a deployment fails, until a terminated server is gone."""

    accept: float = 5.0
    deploy: float = 480.0
    virtual: float = 90.0
    fail: float = 60.0
    terminate: float = 45.0


class CherryProvisioningFate(msgspec.Struct, frozen=True):
    """The fate of a requested server. refusal: of the order, as (HTTP status, text). fails: the
    order is accepted and the deployment fails. state: the server's state then. joins: whether it
    becomes a node of its cluster."""

    refusal: tuple[int, str] | None = None
    fails: bool = False
    state: str = PENDING
    joins: bool = True


NO_STOCK = CherryProvisioningFate((400, "Not enough stock for the requested plan in this region."))
NO_CREDIT = CherryProvisioningFate((402, "Your team has not enough credit to order this server."))
QUOTA = CherryProvisioningFate((400, "The limit of servers for this project is reached."))
NOT_DEPLOYED = CherryProvisioningFate(fails=True)
NEVER_JOINS = CherryProvisioningFate(joins=False)


class Disk(msgspec.Struct, frozen=True):
    """Storage of a plan: a number of disks of one size."""

    count: int
    name: str
    size: float
    unit: str = "GB"
    type: str = "SSD"


class CherryPlan(msgspec.Struct, frozen=True):
    """A plan of the catalogue. memory in `unit`. prices in EUR per hour; spot 0.0 if there
    is none. regions by slug."""

    id: int
    slug: str
    name: str
    cores: int
    memory: int
    disks: tuple[Disk, ...]
    hourly: float
    spot: float = 0.0
    regions: tuple[str, ...] = ("eu_nord_1",)
    type: str = "baremetal"
    sockets: int = 1
    unit: str = "GB"
    frequency: float = 3.5
    cpu_name: str = "CPU"

    @property
    def virtual(self) -> bool:
        """Return whether it is a virtual server."""
        return self.type != "baremetal"


class Region(msgspec.Struct, frozen=True):
    """A region where plans are available."""

    id: int
    slug: str
    name: str
    country: str
    location: str


class SshKey(msgspec.Struct, frozen=True):
    """A public SSH key of the account."""

    id: int
    label: str
    key: str = "ssh-ed25519 AAAAEXAMPLE example"


class Order(msgspec.Struct, frozen=True):
    """The request that created a server, parsed. image: a slug, "" for none."""

    plan: str
    region: str
    hostname: str = ""
    image: str = ""
    ssh_keys: tuple[int, ...] = ()
    user_data: str = ""
    tags: dict[str, str] = {}
    spot: bool = False
    os_partition_size: int = 0


@dataclass(slots=True)
class CherryServer:
    """A server. deployed: when it was, or will be, deployed. listed: when lists begin to show it.
    gone: when it no longer exists. hidden: until when lists show `before`, its state before the
    deletion. reclaimed: when the vendor takes a spot server back. reboots: times of accepted
    reboots."""

    id: int
    project: int
    order: Order
    name: str
    hostname: str
    tags: dict[str, str]
    created: float
    state: str = PENDING
    status: str = DEPLOYING
    deployed: float = NEVER
    listed: float = float("-inf")
    gone: float = NEVER
    hidden: float = float("-inf")
    before: tuple[str, str] = ("", "")
    fate: CherryProvisioningFate = field(default_factory=CherryProvisioningFate)
    bgp: bool = False
    volume: bool = False
    reclaimed: float = NEVER
    reboots: list[float] = field(default_factory=list)

    @property
    def leaving(self) -> bool:
        return self.state == TERMINATING


REGIONS = (
    Region(1, "LT-Siauliai", "Lithuania", "LT", "Lithuania, Siauliai"),
    Region(2, "eu_nord_1", "EU-Nord-1", "LT", "Lithuania, Siauliai"),
    Region(3, "eu_west_1", "EU-West-1", "NL", "Netherlands, Amsterdam"),
    Region(4, "US-Chicago", "United States", "US", "United States, Chicago"),
)
PLANS = (
    CherryPlan(
        86,
        "e3_1240v3",
        "E3-1240v3",
        4,
        16,
        (Disk(2, "SSD 250GB", 250.0),),
        0.1016,
        0.0812,
        ("eu_nord_1", "eu_west_1"),
        frequency=3.4,
        cpu_name="CPU E3-1240v3",
    ),
    CherryPlan(
        113,
        "e5_1620v4",
        "E5-1620v4",
        4,
        32,
        (Disk(2, "SSD 250GB", 250.0),),
        0.1726,
        0.1381,
        ("eu_nord_1", "eu_west_1"),
        cpu_name="CPU E5-1620v4",
    ),
    CherryPlan(
        165,
        "2x_gold_6230r",
        "2x Gold 6230R",
        52,
        384,
        (Disk(2, "NVMe 1TB", 1.0, "TB", "NVME"),),
        0.9863,
        0.0,
        ("LT-Siauliai", "US-Chicago"),
        sockets=2,
        frequency=2.1,
        cpu_name="CPU Gold 6230R",
    ),
    CherryPlan(
        1095,
        "amd-ryzen-9950x",
        "AMD Ryzen 9950X",
        16,
        192,
        (Disk(2, "NVMe 1TB", 1.0, "TB", "NVME"),),
        0.4932,
        0.37,
        ("LT-Siauliai", "US-Chicago"),
        frequency=4.3,
        cpu_name="CPU Ryzen 9950X",
    ),
    CherryPlan(
        625,
        "cloud_vps_2",
        "Cloud VPS 2",
        2,
        4096,
        (Disk(1, "SSD 40GB", 40.0),),
        0.0178,
        0.0,
        ("LT-Siauliai", "eu_west_1"),
        type="vps",
        unit="MB",
        frequency=2.5,
        cpu_name="vCPU",
    ),
    CherryPlan(
        627,
        "cloud_vps_4",
        "Cloud VPS 4",
        4,
        8,
        (Disk(1, "SSD 80GB", 80.0),),
        0.0356,
        0.0283,
        ("LT-Siauliai", "eu_west_1"),
        type="vps",
        frequency=2.5,
        cpu_name="vCPU",
    ),
)
IMAGES = {
    "ubuntu_18_04": "Ubuntu 18.04 64bit",
    "ubuntu_22_04_64bit": "Ubuntu 22.04 64bit",
    "ubuntu_24_04_64bit": "Ubuntu 24.04 64bit",
    "debian_12_64bit": "Debian 12 64bit",
}
KEYS = (SshKey(101, "ops"), SshKey(102, "ci"))
STOCK = 500  # of every plan in every region where it is sold, unless a test sets another number
