"""The mailbox page: emails that did not leave this platform, as their recipients would see them."""

from typing import Any

from csp.constants import HEADER
from django.conf import settings
from django.contrib import admin, messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404
from django.urls import reverse
from django.utils.html import format_html, format_html_join, urlize
from django.utils.http import content_disposition_header
from django.utils.safestring import mark_safe
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _
from django.views.decorators.clickjacking import xframe_options_sameorigin

from control.admin.base import ReadOnlyAdmin
from control.errors import ObjectNotFound
from control.mail.backend import attachments
from control.mail.models import StoredEmail

LETTER_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none';"
    " form-action 'none'; frame-ancestors 'self';"
    " sandbox allow-popups allow-popups-to-escape-sandbox"
)
"""The policy of an email in its frame: no script and no external content; a link opens a new
page."""
FRAME = (
    '<iframe class="letter" src="{}" title="{}" referrerpolicy="no-referrer"'
    ' sandbox="allow-popups allow-popups-to-escape-sandbox"></iframe>'
)
OPENS_ANEW = '<base target="_blank">'


@admin.register(StoredEmail)
class StoredEmailAdmin(ReadOnlyAdmin):
    """Emails in the local mailbox, the newest first."""

    list_display = ("subject", "sent_to", "received_at")
    search_fields = ("sent_to", "subject")
    ordering = ("-id",)
    fields = ("subject", "sent_to", "sender", "received_at", "files", "as_html", "as_text")
    readonly_fields = ("files", "as_html", "as_text")

    def changelist_view(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        """Show above the list where emails are sent."""
        server = settings.CONFIG.mail_server
        if server.is_mailbox:
            words = gettext("Emails are not sent but kept here. Set EMAIL_URL to send them.")
        else:
            words = gettext(
                "Emails are sent through %(server)s. The emails here were kept before that was set."
            ) % {"server": server.shown}
        messages.info(request, words)
        return super().changelist_view(request, *args, **kwargs)

    @admin.display(description="HTML")
    def as_html(self, email: StoredEmail) -> str:
        """Return a frame that shows the HTML without running anything."""
        url = reverse("admin:mail_storedemail_html", args=[email.pk])
        return format_html(FRAME, url, gettext("The email as HTML"))

    @admin.display(description=_("text"))
    def as_text(self, email: StoredEmail) -> str:
        """Return the text with clickable links."""
        linked = mark_safe(urlize(email.text, autoescape=True))  # noqa: S308 - escaped just now
        return format_html('<pre class="wrapped">{}</pre>', linked)

    @admin.display(description=_("attachments"))
    def files(self, email: StoredEmail) -> str:
        """Return links to the attachments."""
        links = (
            (reverse("admin:mail_storedemail_file", args=[email.pk, number]), file.name)
            for number, file in enumerate(attachments(email))
        )
        return format_html_join(", ", '<a href="{}">{}</a>', links) or "-"

    def get_custom_urls(self) -> tuple[tuple[str, str, Any], ...]:
        """Return the URLs of an email's HTML and attachments."""
        return (
            ("<int:letter_id>/html/", "mail_storedemail_html", self.html_view),
            ("<int:letter_id>/file/<int:number>/", "mail_storedemail_file", self.file_view),
        )

    def html_view(self, request: HttpRequest, letter_id: int, **_: Any) -> HttpResponse:
        """Respond with the HTML under its own content security policy, for the frame."""
        return xframe_options_sameorigin(self._html)(request, letter_id)

    def file_view(
        self, request: HttpRequest, letter_id: int, number: int, **_: Any
    ) -> HttpResponse:
        """Respond with an attachment, to be saved. Raises ObjectNotFound."""
        files = attachments(self._letter(request, letter_id))
        if number >= len(files):
            raise ObjectNotFound(gettext("There is no such attachment."))
        file = files[number]
        response = HttpResponse(file.content, content_type=file.content_type)
        response.headers["Content-Disposition"] = content_disposition_header(True, file.name)
        response.headers["X-Content-Type-Options"] = "nosniff"
        return response

    def _html(self, request: HttpRequest, letter_id: int) -> HttpResponse:
        html = self._letter(request, letter_id).html
        response = HttpResponse(html.replace("<head>", f"<head>{OPENS_ANEW}", 1))
        response.headers[HEADER] = LETTER_POLICY
        return response

    def _letter(self, request: HttpRequest, letter_id: int) -> StoredEmail:
        if not self.has_view_permission(request):
            raise ObjectNotFound(gettext("There is no such email."))
        return get_object_or_404(StoredEmail, pk=letter_id)
