"""The least that Django needs to serve one view."""

ROOT_URLCONF = "urls"
ALLOWED_HOSTS = ["127.0.0.1", "localhost"]
