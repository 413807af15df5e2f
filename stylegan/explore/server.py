"""The page's server: for this computer alone, and without a request to any other."""

import logging
import os
import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import gradio as gr
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from stylegan.explore.page import Page
from stylegan.explore.scene import Scene

HOST = "127.0.0.1"
NAMES = [HOST, "localhost"]  # of this computer; a page of another name that leads here gets nothing
CSS = Path(__file__).parent / "page.css"
LARGEST_UPLOAD = "20mb"
GRACE, PATIENCE = 2, 60  # seconds for requests to end, and for the server then
POLICY = (  # where a browser may load from: only here
    "default-src 'self' data: blob:; script-src 'self' 'unsafe-inline' 'unsafe-eval' blob:; "
    "style-src 'self' 'unsafe-inline'; frame-ancestors 'self'"
)
FONTS = ["system-ui", "sans-serif"]


class OnlyHere:
    """Forbids browsers to ask any other computer for anything."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                policy = (b"content-security-policy", POLICY.encode())
                message["headers"] = [*message.get("headers", ()), policy]
            await send(message)

        await self.app(scope, receive, guarded)


MIDDLEWARE = [
    Middleware(TrustedHostMiddleware, allowed_hosts=NAMES, www_redirect=False),
    Middleware(OnlyHere),
]


def theme() -> gr.themes.Base:
    """Colours and fonts, these of the user's system."""
    plain = gr.themes.Soft(font=FONTS, font_mono=["ui-monospace", "monospace"])
    colours = {
        "block_title_background_fill": "transparent",
        "block_title_text_color": "*body_text_color",
        "block_label_background_fill": "transparent",
    }
    dark = {f"{name}_dark": colour for name, colour in colours.items()}
    return plain.set(block_title_padding="0", input_border_width="1px", **colours, **dark)


@contextmanager
def serving(scene: Scene, *, port: int | None = None, browser: bool = False) -> Iterator[str]:
    """The address of the page, which is there until the end; `port` None takes a free one.

    OSError if it cannot be used. What users bring is deleted at the end.
    """
    if port is not None:
        check_port(port)
    with tempfile.TemporaryDirectory(prefix="stylegan-explore-") as folder:
        os.environ |= {"GRADIO_TEMP_DIR": folder, "GRADIO_ANALYTICS_ENABLED": "False"}
        page = Page(scene)
        page.blocks.queue(api_open=False)
        try:
            yield launched(page.blocks, port, browser)
        finally:
            close(page)


def close(page: Page) -> None:
    """End searches, requests and the server, whatever browsers still wait for.

    uvicorn would wait for open sessions without limit, and a process whose threads still compute
    may hang at its end.
    """
    page.closing.set()
    if page.blocks.is_running:
        logging.getLogger("uvicorn.error").disabled = True  # it lists what is cut off
        server = page.blocks.server
        server.config.timeout_graceful_shutdown = GRACE
        page.blocks.close(verbose=False)
        server.thread.join(PATIENCE)  # for what is being computed: one picture, one step
    page.painter.shutdown(cancel_futures=True)


def launched(blocks: gr.Blocks, port: int | None, browser: bool) -> str:
    """The address of a server that runs in the background."""
    _, address, _ = blocks.launch(
        server_name=HOST,
        server_port=port,
        inbrowser=browser,
        share=False,
        quiet=True,
        prevent_thread_lock=True,
        ssr_mode=False,
        pwa=False,
        mcp_server=False,
        enable_monitoring=False,
        show_error=True,
        footer_links=[],
        max_file_size=LARGEST_UPLOAD,
        theme=theme(),
        css_paths=CSS,
        app_kwargs={"middleware": MIDDLEWARE},
    )
    return address


def check_port(port: int) -> None:
    """OSError if nothing can be served there."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError as error:
            raise OSError(
                f"port {port} of {HOST} cannot be used ({error.strerror}); choose another, or none"
            ) from error
