"""One view."""

from django.http import HttpRequest, JsonResponse
from django.urls import path


def read_item(_request: HttpRequest, item: str) -> JsonResponse:
    """Answer what the limiter lets through."""
    return JsonResponse({"item": item})


urlpatterns = [path("items/<item>", read_item)]
