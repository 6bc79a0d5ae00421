"""Hosts that no client may connect to, whatever a kubeconfig or a policy says, and
those of private networks.

A machine's metadata service gives credentials to any program on that machine. It is reached by
link-local addresses and by a few fixed ones, and every address has many spellings. The check
therefore applies to the address itself: the written one, in any spelling, and the one that a name
resolves to.
"""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Callable, Iterable

_HERE = "0.0.0.0/8 ::/128"
_LINK_LOCAL = "169.254.0.0/16 fe80::/10 fec0::/10"
_MULTICAST = "224.0.0.0/3 ff00::/8"  # and reserved
# Metadata of Alibaba Cloud, Azure, Oracle Cloud and Google Cloud; services of EC2 instances.
_METADATA = "100.100.100.200/32 168.63.129.16/32 192.0.0.192/32 fd20:ce::254/128 fd00:ec2::/32"
# to IPv4 by a network-specific rule; Teredo
_TRANSLATED = "64:ff9b:1::/48 ::ffff:0:0:0/96 2001::/32"
_NETWORKS = tuple(
    map(
        ipaddress.ip_network,
        f"{_HERE} {_LINK_LOCAL} {_MULTICAST} {_METADATA} {_TRANSLATED}".split(),
    )
)
_NAT64 = ipaddress.ip_network("64:ff9b::/96")
_LOOPBACK_NAMES = re.compile(r"(?i)(.*\.)?localhost\.?\Z")
_METADATA_NAMES = re.compile(r"(?i)(instance-data|metadata)(\..*)?\Z")
# Forms that inet_aton accepts: one to four numbers, decimal, octal or hexadecimal.
_NUMBERS = re.compile(r"(?i)(0x[0-9a-f]*|[0-9]+)(\.(0x[0-9a-f]*|[0-9]+)){0,3}\.?\Z")

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


def never(host: str) -> bool:
    """Return whether connections to that address or name are always
    forbidden. A name is not resolved."""
    address = address_of(host)
    if address is None:
        return _METADATA_NAMES.match(host) is not None
    return any(address in network for network in _NETWORKS if network.version == address.version)


def is_loopback(host: str) -> bool:
    """Return whether that address or name is this machine."""
    address = address_of(host)
    return _LOOPBACK_NAMES.match(host) is not None if address is None else address.is_loopback


def address_of(host: str) -> Address | None:
    """Return the address in the text, in any spelling, IPv4 embedded in IPv6
    as IPv4; None for a name."""
    if _NUMBERS.match(host):
        try:
            return ipaddress.IPv4Address(socket.inet_aton(host.rstrip(".")))
        except OSError:
            return None
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return None
    return _inner(address) if isinstance(address, ipaddress.IPv6Address) else address


def _inner(address: ipaddress.IPv6Address) -> Address:
    """Return the embedded IPv4 address, otherwise the address itself."""
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    if address.sixtofour is not None:
        return address.sixtofour
    # NAT64; IPv4-compatible
    if address in _NAT64 or (int(address) >> 32 == 0 and int(address) > 1):
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return address


def addresses_of(name: str) -> frozenset[str]:
    """Return the addresses of a name. Raises OSError, ValueError."""
    return frozenset(
        str(entry[4][0]) for entry in socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    )


def are_private(host: str, resolve: Callable[[str], Iterable[str]] = addresses_of) -> bool:
    """Return whether a host is a private address (RFC 1918, RFC 4193, loopback), or a name with
    no others: traffic to it leaves no cloud."""
    address = address_of(host)
    if address is not None:
        return address.is_private
    try:
        addresses = [ipaddress.ip_address(text.partition("%")[0]) for text in resolve(host)]
    except (OSError, ValueError):
        return False
    return bool(addresses) and all(address.is_private for address in addresses)
