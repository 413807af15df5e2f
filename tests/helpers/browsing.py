"""Somebody in front of the explorer's page, in a headless browser."""

import atexit
import functools
import http.server
import re
import shutil
import subprocess
import tempfile
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import sync_playwright

from helpers import ROOT
from helpers.pictures import pixels_of
from stylegan.explore.page import render

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
BROWSER = next(filter(None, map(shutil.which, BROWSERS)), None)
FLAGS = "no-sandbox disable-gpu disable-background-networking disable-component-update disable-sync"
SET = """(element, value) => {
  element.value = value;
  element.dispatchEvent(new Event("input", {bubbles: true}));
}"""
NEEDS_BROWSER = pytest.mark.skipif(
    BROWSER is None, reason=f"needs a browser: one of {', '.join(BROWSERS)}"
)
MODULES = "node_modules/onnxruntime-web/dist"


@functools.cache
def runtime():
    """dist/ of onnxruntime-web: in node_modules/ of the project, else installed by npm."""
    if (ROOT / MODULES).is_dir():
        return ROOT / MODULES
    if shutil.which("npm") is None:
        pytest.skip("needs onnxruntime-web, or npm to install it")
    folder = Path(tempfile.mkdtemp(prefix="stylegan-npm-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    words = ["npm", "install", "--ignore-scripts", "onnxruntime-web"]
    installed = subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=600)
    if installed.returncode:
        pytest.skip(f"npm cannot install onnxruntime-web: {installed.stderr[-300:]}")
    return folder / MODULES


@contextmanager
def launched():
    """A browser."""
    with sync_playwright() as playwright:
        arguments = [f"--{flag}" for flag in FLAGS.split()]
        browser = playwright.chromium.launch(executable_path=BROWSER, args=arguments)
        yield browser
        browser.close()


class Files(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *args):
        pass


@contextmanager
def hosted(folder):
    """The address of a web server of these files."""
    handler = functools.partial(Files, directory=folder)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.1,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/"
        finally:
            server.shutdown()
            thread.join()


def wait(condition, seconds=600.0):
    """What `condition` gives, once it is something."""
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.02)
    return found


# The browser's own notes of a refused number, which the page shows, and of a page that was left.
ANSWERED = re.compile(
    r"Failed to load resource: (.* status of 400|net::ERR_(CONNECTION_RESET|ABORTED))"
)


class User:
    """Somebody in front of the page."""

    def __init__(self, browser, address):
        self.page = browser.new_context(viewport={"width": 1200, "height": 900}).new_page()
        self.page.set_default_timeout(600_000)
        self.asked, self.faults = [], []
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.on("pageerror", lambda error: self.faults.append(str(error)))
        self.page.on("console", lambda line: self.hear(line.text))
        self.page.goto(address)
        self.page.wait_for_selector("#seeds button:nth-child(12) [src]")

    def hear(self, text):
        if not ANSWERED.match(text):
            self.faults.append(text)

    def open(self, *sections):
        for name in sections:
            self.page.click(f"summary:text-is('{name}')")

    def slide(self, name, value):
        self.page.eval_on_selector(f"[id='{name}'] input[type=range]", SET, str(value))

    def choose(self, name, text):
        self.page.select_option(f"#{name} select", label=text)

    def sees(self, loaded, view):
        """Whether the picture becomes that of the view."""
        expected = render(loaded, view).astype(int)

        def same():
            shown = pixels_of(self.page.get_attribute("#picture img", "src") or "")
            shown = shown[..., : expected.shape[-1]]  # those of a canvas have alpha
            return shown.shape == expected.shape and np.abs(shown - expected).max() <= 1

        return wait(same)

    def download(self, button, folder):
        with self.page.expect_download() as download:
            self.page.click(button)
        path = folder / download.value.suggested_filename
        download.value.save_as(path)
        return path

    def message(self, part):
        wait(lambda: part in self.page.inner_text("#message"))

    def caption(self):
        return self.page.inner_text("#picture figcaption")

    def close(self):
        assert not self.faults, self.faults
        self.page.context.close()
