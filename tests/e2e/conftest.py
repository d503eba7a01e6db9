"""What all end-to-end tests share: a real browser."""

from __future__ import annotations

from tests.browser import browser, chromium

__all__ = ["browser", "chromium"]
