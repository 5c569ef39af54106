"""The routes of the shop."""

from django.urls import path

from shop import views

urlpatterns = [
    path("", views.show_book),
    path("buy/<uuid:cart>", views.buy),
    path("webhooks", views.receive_webhook),
    path("order", views.show_order),
]
