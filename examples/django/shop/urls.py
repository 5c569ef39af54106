"""The routes of the shop."""

from django.conf import settings
from django.urls import include, path

from shop import views

urlpatterns = [
    path("", views.show_book),
    path("buy/<uuid:order_id>", views.buy),
    path("webhooks", views.receive_webhook),
    path("orders/<uuid:order_id>", views.show_order),
]
if settings.IS_GRADED:
    urlpatterns += [path("graded", include("shop.graded"))]
