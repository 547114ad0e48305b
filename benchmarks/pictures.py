"""The pictures of docs/pictures.md: pages of three runs in a headless Chromium, on a desk and a phone, light and dark.

python benchmarks/pictures.py DEMO LEARN EVALUATION [--out docs/pictures]

The arguments are the directories of runs made by `demo`, `learn --preset smoke` and `evaluate`. It writes WebP, which
only Chromium's own protocol makes. Debian's package is `chromium`.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import shutil
import subprocess
import sys
from pathlib import Path

from playwright.async_api import Browser, async_playwright

PAGES = {
    "demo": "0/rollouts/0/tokens",
    "rollout": "0/rollouts/0",
    "learn": "2/",
    "evaluate": "1/evaluations",
}
"""The pages by their picture's name. The number is that of the run; a learning run counts for several."""
WINDOWS = {"desk": (1280, 900), "phone": (390, 844)}
QUALITY = 55


async def picture(browser: Browser, url: str, path: Path, window: tuple[int, int], *, dark: bool) -> None:
    """Write what a window of a browser shows of a page. Raises ValueError for a page that is not there."""
    context = await browser.new_context(
        viewport={"width": window[0], "height": window[1]}, color_scheme="dark" if dark else "light"
    )
    page = await context.new_page()
    answer = await page.goto(url)
    if answer is None or not answer.ok:
        raise ValueError(f"{url}: {answer and answer.status}")
    if url.endswith("/tokens"):
        await page.get_by_role("link", name="turn 1").click()
    await page.wait_for_load_state("networkidle")
    session = await context.new_cdp_session(page)
    shot = await session.send("Page.captureScreenshot", {"format": "webp", "quality": QUALITY})
    await asyncio.to_thread(path.write_bytes, base64.b64decode(shot["data"]))
    await context.close()


async def pictures(base: str, out: Path) -> None:
    """Write every page in every window and look."""
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for name, place in PAGES.items():
            for kind, window in WINDOWS.items():
                for look in ("light", "dark"):
                    path = out / f"{name}-{kind}-{look}.webp"
                    await picture(browser, f"{base}/{place}", path, window, dark=look == "dark")
                    print(f"{path.stat().st_size / 1000:6.0f} kB  {path}")
        await browser.close()


def main() -> None:
    """Start the page as `view` does, and write its pictures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("demo", "learn", "evaluation"):
        parser.add_argument(name, type=Path)
    parser.add_argument("--out", type=Path, default=Path("docs/pictures"))
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    runs = (options.demo, options.evaluation, options.learn)
    command = [sys.executable, "-m", "envs.swe", "view", *map(str, runs)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as view:
        assert view.stdout is not None
        try:
            asyncio.run(pictures(view.stdout.readline().strip().rstrip("/"), options.out))
        finally:
            view.terminate()


if __name__ == "__main__":
    main()
