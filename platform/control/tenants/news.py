"""What a person is told by mail of what happened to them: decided in the transaction of what
happened, one template for all of it."""

import uuid
from dataclasses import dataclass
from datetime import datetime

from allauth.account.adapter import get_adapter
from django.db import transaction
from django.http import HttpRequest
from django.urls import reverse

from control.mail.services import absolute, send_mail
from control.tenants.sign_in.words import device_name


@dataclass(frozen=True, slots=True)
class News:
    """A mail's subject and sentence, what to do about it, and the button for that. `page` is the
    name of an address, or an address."""

    subject: str
    sentence: str
    advice: str
    page: str
    label: str


def tell(
    news: News,
    *,
    to: str,
    now: datetime,
    request: HttpRequest | None = None,
    who: str = "",
    organization_id: str | None = None,
) -> None:
    """Mail news to an address. `who` did it, where it was another person; `request` did it, where
    it was the person's own browser, or one that has their password."""
    facts = [["When", f"{now:%d %B %Y, %H:%M} UTC"]]
    if who:
        facts.append(["By", who])
    if request is not None:
        facts.append(["Device", device_name(request.META.get("HTTP_USER_AGENT", ""))])
        facts.append(["Address", get_adapter().get_client_ip(request)])
    path = news.page if news.page.startswith("/") else reverse(news.page)
    with transaction.atomic():
        send_mail(
            template="news",
            to=[to],
            context={
                "email": to,
                "subject": news.subject,
                "sentence": news.sentence,
                "facts": facts,
                "advice": news.advice,
                "url": absolute(path),
                "label": news.label,
            },
            key=f"news:{uuid.uuid4()}",
            organization_id=organization_id,
            now=now,
        )
