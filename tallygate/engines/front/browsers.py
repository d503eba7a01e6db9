"""Tells programs from web pages: a page anywhere can make a browser on this machine send requests here.

Programs send neither Origin nor Sec-Fetch-Site, and name this server as they were told to; a page whose own name was
made to point here (DNS rebinding) names itself.

Browsers send Sec-Fetch-Site to trustworthy addresses only: HTTPS, and loopback. Over plain HTTP to any other address
they leave it out; and Origin comes with what a script asks for across origins and with every POST, but not with the
GET of a picture, a frame or a link. There a page's GET looks like a program's. It changes nothing, for GET is read-
only, and the page cannot see the answer, but it can keep the engine busy: a server that listens beyond loopback needs
users with passwords, which a page does not know.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable

from starlette.datastructures import Headers

from tallygate.engines.front.errors import Code, refusal

_HOST = re.compile(r"(?:\[(?P<six>[0-9A-Fa-f:.]+)\]|(?P<name>[^\s:\[\]@/]+))(?::[0-9]{1,5})?\Z")


def refuse_web_pages(headers: Headers, names: Iterable[str]) -> None:
    """Let programs through, and people who type an address.

    Args:
        headers: of the request.
        names: what this server is called, besides ``localhost`` and any IP address.

    Raises:
        FrontError: 497, the request is a web page's, or its Host is none of ours.
    """
    if "origin" in headers:
        raise refusal(Code.ACCESS_DENIED, "Requests from web pages are refused: this one has an Origin.")
    site = headers.get("sec-fetch-site", "none")
    if site != "none":
        raise refusal(
            Code.ACCESS_DENIED, f"Requests from web pages are refused: Sec-Fetch-Site is {site[:40]!r}; allowed: none."
        )
    known = {"localhost", *(name.lower() for name in names)}
    for host in headers.getlist("host"):
        if not _is_ours(host, known):
            raise refusal(
                Code.ACCESS_DENIED,
                f"Host is {host[:80]!r}; allowed: an IP address, {', '.join(sorted(known))}; --allow-host allows more.",
            )


def _is_ours(host: str, known: set[str]) -> bool:
    found = _HOST.match(host)
    if found is None:
        return False
    name = (found["six"] or found["name"]).lower().removesuffix(".")
    if name in known:
        return True
    try:
        # No name had to be looked up for it, so none can have been made to point here.
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
