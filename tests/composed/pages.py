"""What the composed dashboard says of one caller, read as a customer reads it: through a sign-in link."""

from __future__ import annotations

import html
import re
from dataclasses import dataclass

import httpx

from dashboard.links import sign_in_link

_TAG = re.compile(r"<[^>]*>")


@dataclass(frozen=True, slots=True)
class Shown:
    """The counts of `/usage.json`, and the sentence of the page."""

    sent: int
    admitted: int
    refused: int
    sentence: str

    def agrees(self, admitted: int, refused: int) -> bool:
        """Whether both say so."""
        numbers = (self.sent, self.admitted, self.refused) == (admitted + refused, admitted, refused)
        words = self.sentence.startswith(f"You sent {admitted + refused:,} request")
        return numbers and words and (refused == 0 or f"; {refused:,} (" in self.sentence)


def read_pages(base_url: str, secret: str, caller: str) -> Shown:
    """Sign in as the customer and read both.

    Raises:
        httpx.HTTPError: the dashboard did not answer, or not with a page.
    """
    with httpx.Client(base_url=base_url, follow_redirects=True, timeout=20.0) as client:
        client.get(sign_in_link(base_url, secret, "customer", caller)).raise_for_status()
        page = client.get("/usage").raise_for_status()
        totals = client.get("/usage.json").raise_for_status().json()["totals"]
    return Shown(int(totals["sent"]), int(totals["admitted"]), int(totals["refused"]), sentence_of(page.text))


def sentence_of(page: str) -> str:
    """The words of the element `#sentence`; empty when the page has none."""
    found = re.search(r'<(\w+)[^>]*\bid="sentence"[^>]*>(.*?)</\1>', page, re.DOTALL)
    return " ".join(html.unescape(_TAG.sub("", found[2])).split()) if found else ""
