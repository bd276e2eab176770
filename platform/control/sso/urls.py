"""The addresses of single sign-on, under /sso/, and of SCIM, under /scim/v2/."""

from django.urls import path

from control.sso import views
from control.sso.scim import views as scim

urlpatterns = [
    path("sso/", views.begin, name="sso_begin"),
    path("sso/<str:organization_id>/callback", views.callback, name="sso_callback"),
    path("sso/<str:organization_id>/acs", views.acs, name="sso_acs"),
    path("scim/v2/ServiceProviderConfig", scim.provider_config),
    path("scim/v2/ResourceTypes", scim.resource_types),
    path("scim/v2/ResourceTypes/<str:name>", scim.resource_type),
    path("scim/v2/Schemas", scim.schemas),
    path("scim/v2/Schemas/<str:name>", scim.schema),
    path("scim/v2/Users", scim.users),
    path("scim/v2/Users/<str:user_id>", scim.user),
    path("scim/v2/Groups", scim.groups),
    path("scim/v2/Groups/<str:group_id>", scim.group),
    path("scim/v2/<path:rest>", scim.nothing),
]
