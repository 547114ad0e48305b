"""What is found on a page."""

from __future__ import annotations

import re
from html.parser import HTMLParser


class Elements(HTMLParser):
    """The elements of a page, their attributes, and its text."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.text = ""
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]

    def handle_data(self, data):
        self.text += data


def places(client, run=0, query=""):
    """The places of the rollouts in a list, in its order."""
    html = client.get(f"/{run}/rollouts{query}").text
    return list(dict.fromkeys(int(place) for place in re.findall(rf"/KEY/{run}/rollouts/(\d+)", html)))


def shown(client, path):
    answer = client.get(path)
    assert answer.status_code == 200, answer.text
    return Elements(answer.text)
