"""A headless Chromium, for the tests that look at the page as a user does."""

from __future__ import annotations

import asyncio
import re
import shutil
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.async_api import Browser, Page

ARGUMENTS = (
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)


def chromium() -> Path:
    """The browser. The test is skipped where there is none: Debian's package is `chromium`."""
    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if found is None:
        pytest.skip("needs Chromium: apt-get install chromium")
    return Path(found)


@asynccontextmanager
async def browsing() -> AsyncIterator[Browser]:
    from playwright.async_api import async_playwright

    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=chromium(), args=list(ARGUMENTS))
        try:
            yield browser
        finally:
            await browser.close()


async def serious(page: Page) -> list[str]:
    """What axe-core finds serious or critical on a page."""
    from axe_playwright_python.async_playwright import Axe

    found = await Axe().run(page)
    return [
        f"{one['id']}: {one['help']}: {[node['html'][:160] for node in one['nodes'][:3]]}"
        for one in found.response["violations"]
        if one["impact"] in ("serious", "critical")
    ]


@contextmanager
def complaints(page: Page) -> Iterator[list[str]]:
    """What the page's script throws, what the browser complains about, and requests to elsewhere."""
    found: list[str] = []
    page.on("pageerror", lambda error: found.append(str(error)))
    page.on("console", lambda message: found.append(message.text) if message.type in ("error", "warning") else None)
    page.on("request", lambda request: None if "//127.0.0.1:" in request.url else found.append(request.url))
    yield found


async def open_page(browser: Browser, *, phone: bool = False, dark: bool = False) -> Page:
    """A new window, as wide as a desk's or as a phone."""
    context = await browser.new_context(
        viewport={"width": 390, "height": 844} if phone else {"width": 1280, "height": 900},
        color_scheme="dark" if dark else "light",
    )
    return await context.new_page()


async def more_members(page: Page, before: int) -> int:
    """Wait until the page, which asks by itself what is new, shows more rollouts than before."""
    async with asyncio.timeout(120):
        # Nothing in the page tells us.
        while (found := members(await page.inner_text("#figures"))) <= before:  # noqa: ASYNC110
            await asyncio.sleep(0.5)
    return found


def members(text: str) -> int:
    """How many rollouts the overview says that the journal has."""
    return int(found[1]) if (found := re.search(r"The journal has (\d+) rollouts?", text)) else 0
