"""How templates call a device."""

from django import template

from control.accounts.trusted_devices import device_name

register = template.Library()
register.filter("device", device_name)
