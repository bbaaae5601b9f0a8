"""The plugin that puts the page of indexes into Airflow's navigation.

Every Airflow process imports this module, workers included, while only the API server shows the
page: so whatever costs time is imported when the page is first asked for.
"""

from typing import Any

from airflow.plugins_manager import AirflowPlugin


async def serve(scope: Any, receive: Any, send: Any) -> None:
    """Answer as the application of the page does, which is made at the first request."""
    from puffin_ann.airflow.page.application import application

    await application()(scope, receive, send)


APPLICATIONS: list[Any] = [{"name": "puffin-ann", "app": serve, "url_prefix": "/puffin-ann"}]
VIEWS: list[Any] = [
    {
        "name": "Vector indexes",
        # Without a leading slash, so that it is right wherever Airflow is served from.
        "href": "puffin-ann/",
        "url_route": "vector-indexes",
        "category": "browse",
        "destination": "nav",
    }
]


class PuffinAnnPlugin(AirflowPlugin):
    """Adds the page to Airflow's navigation."""

    name = "puffin_ann"
    fastapi_apps = APPLICATIONS
    external_views = VIEWS
