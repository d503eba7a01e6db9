"""Reads the two headers in which proxies name the hop before them, from the right. Pure; believes nobody.

From the right, because only there stands what our own proxies wrote. Whatever a client has put before it, an open
quote or half an element included, is never reached before the first untrusted name has been returned. Text that is no
address reads as None: a hop that does not say who called it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import TypeAlias

Address: TypeAlias = IPv4Address | IPv6Address

#: Longest text that can be an address with a zone and a port; longer ones are not even looked at.
_MOST_CHARACTERS = 128
_PORT = r"(?::(?:\d{1,5}|_[A-Za-z0-9._-]+))?"
_BRACKETED = re.compile(rf"\[([^\[\]]*)\]{_PORT}")
_DOTTED = re.compile(rf"([0-9.]+){_PORT}")
_PAIR = re.compile(r"""([!#$%&'*+.^_`|~0-9A-Za-z-]+)=(?:"((?:[^"\\]|\\.)*)"|([!#$%&'*+.^_`|~0-9A-Za-z:\[\]-]+))""")
_ESCAPED = re.compile(r"\\(.)")


def address_of(text: str) -> Address | None:
    """An IP address as people and proxies write it: with a port, in brackets, with a zone; None if it is none.

    An IPv4 address mapped into IPv6 is that IPv4 address: a dual-stack socket and a plain one name the same caller.
    """
    text = text.strip()
    if len(text) > _MOST_CHARACTERS:
        return None
    found = _BRACKETED.fullmatch(text)
    if found is not None:
        host = found[1]
        if ":" not in host:
            return None
    else:
        dotted = _DOTTED.fullmatch(text)
        host = dotted[1] if dotted is not None else text
    try:
        address = ip_address(host.partition("%")[0])
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return mapped or address


def x_forwarded_for(lines: list[str]) -> Iterator[Address | None]:
    """The hops of ``X-Forwarded-For``, nearest first. An empty element is a hop that is not named."""
    for line in reversed(lines):
        end = len(line)
        while end >= 0:
            comma = line.rfind(",", 0, end)
            yield address_of(line[comma + 1 : end])
            end = comma


def forwarded(lines: list[str]) -> Iterator[Address | None]:
    """The hops of ``Forwarded`` (RFC 7239), nearest first.

    None for an element without ``for``, with ``unknown``, with an obfuscated identifier, or that cannot be read.
    """
    for line in reversed(lines):
        end = len(line)
        while end >= 0:
            comma = _comma_before(line, end)
            yield _node_of(line[comma + 1 : end])
            end = comma


def _comma_before(line: str, end: int) -> int:
    """Where the element that ends at `end` begins: the comma before it that is in no quoted string, or -1."""
    quoted = False
    for position in range(end - 1, -1, -1):
        character = line[position]
        if character == '"' and not _is_escaped(line, position):
            quoted = not quoted
        elif character == "," and not quoted:
            return position
    return -1


def _is_escaped(line: str, position: int) -> bool:
    before = position
    while before > 0 and line[before - 1] == "\\":
        before -= 1
    return (position - before) % 2 == 1


def _node_of(element: str) -> Address | None:
    """The address in an element's ``for``; None if there is none, or more than one, or the element is broken."""
    node: str | None = None
    rest = element.strip(" \t")
    while rest:
        found = _PAIR.match(rest)
        if found is None:
            return None
        if found[1].lower() == "for":
            if node is not None:
                return None
            node = _ESCAPED.sub(r"\1", found[2]) if found[2] is not None else found[3]
        rest = rest[found.end() :].lstrip(" \t")
        if rest and not rest.startswith(";"):
            return None
        rest = rest[1:].lstrip(" \t")
    return address_of(node) if node is not None else None
