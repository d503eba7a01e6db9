"""Settings for recorders of tests whose decisions are of fixed days: nothing that they record is past its time."""

from __future__ import annotations

KEEP_ALL = {
    "TALLYGATE_KEEP_ADMITTED_DAYS": "10000",
    "TALLYGATE_KEEP_REFUSED_DAYS": "10000",
    "TALLYGATE_KEEP_MINUTES_DAYS": "10000",
}
