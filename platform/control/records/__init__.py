"""Organizations, projects and API keys as the data plane needs them. Each record is made of rows of
several nouns (its own, its budgets, its rate limits), so it is made above all of them: a service
names what it touched (`control.publish.services.Touched`), and publishing asks `news_of` here.
"""

from collections.abc import Collection

from control.publish.services import News
from control.records.keys import news_of_keys
from control.records.organizations import news_of_organizations, news_of_projects

MAKERS = {
    "organization": news_of_organizations,
    "project": news_of_projects,
    "api_key": news_of_keys,
}


def news_of(kind: str, ids: Collection[str]) -> list[News]:
    """Return what to publish of the rows of a kind, as they stand in this transaction."""
    return MAKERS[kind](ids)
