"""What all pages have in common."""

import re


def test_a_page_that_shows_all_there_is_gets_an_empty_answer(client):
    html = client.get("/0/").text
    seen = re.search(r'data-seen="(\w+)"', html)[1]
    assert client.get("/0/", headers={"x-seen": seen}).status_code == 204
    assert client.get("/0/", headers={"x-seen": "other"}).status_code == 200
