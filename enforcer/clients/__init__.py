"""What callers need to wait for their tokens: which refused request is sent again, and when.

Sends nothing by itself: `for_httpx` and `for_requests` do, each with the library of its name, which importing this
package does not need.
"""

from enforcer.clients.core import RetryBudget, RetryRules
from enforcer.clients.retries import Attempts, Retries, RetryCounts

__all__ = ["Attempts", "Retries", "RetryBudget", "RetryCounts", "RetryRules"]
