"""The shop's settings. Environment variables configure a deployment."""

import os
from pathlib import Path

from django.core.management.utils import get_random_secret_key

SECRET_KEY = os.environ.get("DJANGO_SECRET_KEY") or get_random_secret_key()
ALLOWED_HOSTS = os.environ.get("DJANGO_ALLOWED_HOSTS", "127.0.0.1 localhost").split()
INSTALLED_APPS = ["shop"]
MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
]
ROOT_URLCONF = "shop.urls"
TEMPLATES = [{"BACKEND": "django.template.backends.django.DjangoTemplates", "APP_DIRS": True}]
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": Path(__file__).parents[1] / "orders.db",
    }
}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
USE_TZ = True
DATA_UPLOAD_MAX_MEMORY_SIZE = 64 * 1024

SHOP_URL = os.environ.get("SHOP_URL", "").rstrip("/")  # its origin must be registered for the shop
PAYINTENT_URL = os.environ["PAYINTENT_URL"]
PAYINTENT_API_KEY = os.environ["PAYINTENT_API_KEY"]
PAYINTENT_WEBHOOK_SECRETS = os.environ["PAYINTENT_WEBHOOK_SECRET"].split()  # two during a rotation
#: Whether the shop serves the grader's routes, which requires SHOP_GRADED and a test key.
IS_GRADED = "SHOP_GRADED" in os.environ and PAYINTENT_API_KEY.startswith("sk_test_")
