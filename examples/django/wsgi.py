"""A Django project's ``wsgi.py`` with the limiter in front of it: each of the server's workers is a copy of its own."""

from functools import partial

from django.core.wsgi import get_wsgi_application

from stream import kafka_sink
from tallygate import RateLimitWSGIMiddleware, build_limiter

application = RateLimitWSGIMiddleware(get_wsgi_application(), partial(build_limiter, sink=kafka_sink))
