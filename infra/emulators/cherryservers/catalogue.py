"""Plans and regions of the emulated Cherry Servers, with old slugs and new ones, because both occur.

Prices and stock are the emulation's; the plans include the examples of the API contract.
"""

from __future__ import annotations

from infra.emulators.cherryservers.models import CherryPlan, Disk, Region, SshKey

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
