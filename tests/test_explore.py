"""The explorer without a browser: its pictures, controls and server."""

import base64
import contextlib
import http.client
import io
import json
import math
import socket
import threading
import time

import numpy as np
import pytest
import torch
from helpers.pictures import pixels_of
from helpers.tiny_generators import LABELED, TINY, loaded_of, random_generator
from torch.testing import assert_close

from stylegan import sampling
from stylegan.directions import find_directions
from stylegan.explore.controls import Controls, View, moves_along
from stylegan.explore.page import Page, final_styles, latents_file, render
from stylegan.explore.server import FILES, HOST, Server, serving
from stylegan.files.latents import read_latents
from stylegan.networks.edits import apply_edits
from stylegan.ops import truncate


def explored(config=TINY, **about):
    """A page for a tiny generator of loud noise, with two directions of each method."""
    generator = random_generator(config, noise=0.5)
    names = ("a", "b", "c") if config.label_dim else ()
    loaded = loaded_of(generator, label_names=names, **about)
    directions = find_directions(generator, ("pca", "sefa"), count=2, samples=200)
    return Page(loaded, moves_along(directions), "tiny")


def values(page, **changes):
    """The values of the page's controls at first, with some moved."""
    controls = [one for section in page.controls.sections.values() for one in section]
    first = {one.name: one.value for one in controls}
    return json.loads(json.dumps(first)) | changes  # as a browser sends them


@pytest.fixture(scope="module")
def page():
    return explored(LABELED)


@pytest.fixture(scope="module")
def port(page):
    with serving(page) as address:
        yield int(address.strip("/").rpartition(":")[2])


def difference(picture, other):
    return np.abs(picture.astype(int) - other.astype(int)).max()


@pytest.mark.parametrize(
    "options", [{"psi": 0.7}, {"psi": -1, "noise": "none"}, {"psi": 1, "noise": "random"}]
)
def test_explore_render_equals_generate_for_a_seed(page, options):
    label = torch.eye(3)[2:]
    (expected,) = page.loaded.generate([3], labels=label, **options)
    view = View(seed=3, label=2, noise_seed=3, **options)
    assert difference(render(page.loaded, view), expected) <= 1


def test_explore_labels_offer_vectors_of_the_data():
    rows = torch.tensor([[0.5, 2.0, -1.0], [0.25, 0.0, 3.0]])
    page = explored(LABELED, label_rows=rows)
    (menu,) = (one for one in page.controls.sections["picture"] if one.name == "label")
    assert list(menu.options) == [("0", "label 1 of the data"), ("1", "label 2 of the data")]
    (expected,) = page.loaded.generate([3], labels=rows[1:], psi=1)
    assert difference(render(page.loaded, View(seed=3, label=1, psi=1)), expected) <= 1


def test_explore_plane_has_three_seeds_at_its_corners(page):
    def ws(seed=0, **place):
        return final_styles(page.loaded, View(seed, 0, 1, **place))

    at = {"plane_a": 7, "plane_b": 8}
    assert_close(ws(plane_x=1, **at), ws(7))
    assert_close(ws(plane_y=1, **at), ws(8))
    expected = ws() + 0.5 * (ws(7) - ws()) - 2 * (ws(8) - ws())
    assert_close(ws(plane_x=0.5, plane_y=-2, **at), expected)


def test_explore_mixing_takes_the_layers_of_the_other_seed(page):
    mixed = final_styles(page.loaded, View(1, 0, 1, mix_seed=2, mix_layers=(1, 4)))
    own, other = (final_styles(page.loaded, View(seed, 0, 1)) for seed in (1, 2))
    rows = torch.tensor([0, 1, 0, 0, 1, 0], dtype=torch.bool)
    assert_close(mixed, torch.where(rows[:, None], other, own))


def test_controls_offer_only_layers_that_have_grown():
    loaded = loaded_of(random_generator()).with_settings(resolution=8)
    assert Controls(loaded, {}).layers == 6  # averaged down from 16x16
    growing = loaded_of(random_generator(), resolution=8)
    assert Controls(growing, {}).layers == 4


def test_explore_edits_are_applied_after_truncation(page):
    moved = values(page, seed=4, label="1", psi=0.5, edit_last=3) | {"pca:2": 2, "sefa:1": -1}
    view = page.controls.view(moved)
    assert [(e.strength, e.layers) for e in view.edits] == [(2, range(4)), (-1, range(4))]
    ws = final_styles(page.loaded, View(4, 1, 1))[None]
    ws = truncate(ws, page.loaded.generator.w_avg, 0.5, 8)
    assert_close(final_styles(page.loaded, view), apply_edits(ws, view.edits)[0])


@pytest.mark.parametrize("noise", ["const", "random"])
def test_latents_file_reproduces_the_rendered_image(page, tmp_path, noise):
    edits = page.controls.view(values(page) | {"pca:1": 1}).edits
    view = View(2, 1, edits=edits, noise=noise, noise_seed=5)
    (tmp_path / "l.npz").write_bytes(latents_file(page.loaded, view))
    latents = read_latents(tmp_path / "l.npz", page.loaded.generator)
    (again,) = page.loaded.generate(psi=1, ws=latents.ws, noise=latents.noise or "const")
    assert difference(again, render(page.loaded, view)) <= 1


def test_explore_render_keeps_resolution_alpha_and_crop_of_the_file():
    growing = explored(resolution=8, alpha=0.5, active_rectangle=(1, 7, 0, 8)).loaded
    picture = render(growing, View())
    assert picture.shape == (6, 8, 3)
    assert difference(picture, next(growing.generate([0], psi=0.7))) <= 1


def as_file(pixels, name="mine.png"):
    buffer = io.BytesIO()
    sampling.to_pil(pixels).save(buffer, "PNG")
    return {"name": name, "content": base64.b64encode(buffer.getvalue()).decode()}


def test_explore_search_projects_and_edits_a_sample(page):
    target = render(page.loaded, View(1, 0, 0.6))
    given = values(page, steps=200, space="w+", **as_file(target))
    with pytest.raises(ValueError, match="project an image first"):
        next(page.picture(given | {"start": "own"}))
    wanted, first, *_, last, end = page.search(given)
    assert end == {"done": True}
    assert wanted["caption"] == "wanted: mine.png"
    decibels = [float(part["caption"].split(" ")[-2]) for part in (first, last)]
    assert decibels[1] > decibels[0] + 10 and last["caption"].startswith("step 200 of 200")
    (shown,) = page.picture(given | {"start": "own", "pca:1": 0})
    assert difference(pixels_of(shown["picture"]), pixels_of(last["picture"])) <= 1
    (moved,) = page.picture(given | {"start": "own", "pca:1": 2})
    assert difference(pixels_of(moved["picture"]), pixels_of(shown["picture"])) > 1


def test_explore_search_and_image_requests_alternate(page):
    target = render(page.loaded, View(1, 0, 0.6))
    search = page.search(values(page, steps=20) | as_file(target))
    next(search)
    step = threading.Thread(target=next, args=(search,))
    with page.computing:
        step.start()
        step.join(0.3)
        assert step.is_alive()
    step.join()
    (shown,) = page.picture(values(page))  # while the search goes on
    assert shown["picture"] and len(list(search)) == 21


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"seed": -1}, "Seed must be a whole number from 0 to 4294967295, got -1"),
        ({"psi": math.nan}, "Truncation ψ must be a number from -1.5 to 1.5, got nan"),
        ({"label": "3"}, "Class must be one of its options, got '3'"),
        ({"mix_layers": [6]}, r"Layers must be a list of layers below 6, got \[6\]"),
    ],
)
def test_explore_controls_reject_invalid_values(page, changes, message):
    with pytest.raises(ValueError, match=message):
        page.controls.view(values(page, **changes))


def sent(port, method, path, body=b"", **headers):
    """Status, headers and content of the answer; `_` in names of headers is `-`."""
    given = {"Host": f"{HOST}:{port}"} | {k.replace("_", "-"): v for k, v in headers.items()}
    connection = http.client.HTTPConnection(HOST, port, timeout=60)
    with contextlib.closing(connection):
        connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
        for name, value in ({"Content-Length": str(len(body))} | given).items():
            connection.putheader(name, value)
        connection.endheaders(body)
        answer = connection.getresponse()
        return answer.status, dict(answer.headers), answer.read()


def asked(port, path, given):
    """The status of the answer, and its parts."""
    body = given if isinstance(given, bytes) else json.dumps(given).encode()
    status, _, content = sent(port, "POST", path, body, Origin=f"http://{HOST}:{port}")
    return status, [json.loads(line) for line in content.splitlines()]


def test_explore_server_serves_the_page_and_its_images(port, page):
    for address in FILES:
        status, headers, content = sent(port, "GET", address)
        assert status == 200 and content
        assert "default-src 'none'" in headers["Content-Security-Policy"]
    status, (found,) = asked(port, "/picture", values(page, seed=7, label="1"))
    assert status == 200
    assert np.array_equal(pixels_of(found["picture"]), render(page.loaded, View(7, 1)))


@pytest.mark.parametrize("path", ["/picture", "/search"])
def test_explore_server_tells_the_page_that_memory_is_short(port, page, path, monkeypatch):
    def fail(values):
        raise torch.OutOfMemoryError("CUDA out of memory.")
        yield

    monkeypatch.setitem(page.answers, path, fail)
    wanted = {"error": "the device is out of memory: CUDA out of memory."}
    assert asked(port, path, {}) == (400, [wanted])


@pytest.mark.parametrize(
    ("header", "value"),
    [
        ("Host", "example.org:{port}"),  # a name that DNS leads here
        ("Origin", "https://example.org"),
        ("Origin", "http://localhost:3000"),  # another page of this computer
    ],
)
def test_explore_server_rejects_requests_of_other_pages(port, page, header, value):
    given = {"Origin": f"http://{HOST}:{port}"} | {header: value.format(port=port)}
    for method, paths in (("GET", FILES), ("POST", page.answers)):
        for path in paths:
            status, found, content = sent(port, method, path, b"{}", **given)
            assert status == 403 and list(json.loads(content)) == ["error"]
            assert not [name for name in found if name.startswith("Access-Control")]
    assert sent(port, "POST", "/picture", b"{}")[0] == 403  # without an origin
    assert [asked(port, "/picture", body)[0] for body in (b"[]", b"[" * 99_999)] == [400, 400]
    for path in ("/config", "/../pyproject.toml", "/page.py"):
        assert sent(port, "GET", path)[0] == 404


def test_explore_server_accepts_many_waiting_connections(page):
    with Server(page, 0) as server, contextlib.ExitStack() as clients:
        for _ in range(40):  # before the first is accepted
            clients.enter_context(socket.create_connection(server.server_address, timeout=1))


def test_explore_server_stops_despite_open_connections(capfd):
    page, before = explored(), set(threading.enumerate())
    given = values(page, steps=1000, **as_file(np.zeros((16, 16, 3), np.uint8)))
    body = json.dumps(given).encode()
    with contextlib.ExitStack() as clients:
        with serving(page) as address:
            port = int(address.strip("/").rpartition(":")[2])
            head = "POST /search HTTP/1.1\r\nHost: localhost\r\nOrigin: http://localhost\r\n"
            for length in (len(body), len(body) + 1):  # searches, is incomplete
                client = clients.enter_context(socket.create_connection((HOST, port)))
                client.sendall(f"{head}Content-Length: {length}\r\n\r\n".encode() + body)
                if length == len(body):
                    assert b"200 OK" in client.recv(99)
            assert asked(port, "/picture", given)[0] == 200
            start = time.monotonic()
        assert time.monotonic() - start < 20
    waiting = [one for one in threading.enumerate() if one not in before and not one.daemon]
    assert not waiting and capfd.readouterr() == ("", "")
