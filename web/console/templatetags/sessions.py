"""How templates call a device."""

from django import template

from control.tenants.sign_in.words import device_name

register = template.Library()
register.filter("device", device_name)
