"""The page's server: whom it answers, what it says to what cannot be, how it ends."""

import base64
import contextlib
import http.client
import io
import json
import os
import socket
import threading
import time

import numpy as np
import pytest
from explorer import controls, explored
from PIL import Image
from tiny_generators import assert_same_weights

from stylegan import sampling
from stylegan.explore import View, final_styles, render
from stylegan.explore.server import HOST, serving
from stylegan.files.keyframes import read_keyframes, styles_text
from stylegan.files.latents import read_latents, write_latents
from stylegan.files.loading import load_source
from stylegan.lineage import NVIDIA, Source

FIRST = controls(explored())
ADDRESSES = ["/", "/page.js", "/page.css"]
QUESTIONS = [
    *("/scene", "/picture", "/activations", "/latents", "/load", "/search", "/keep"),
    *("/keyframes", "/film", "/tuned"),
]


@pytest.fixture(scope="module")
def scene():
    return explored()


@pytest.fixture(scope="module")
def port(scene):
    with serving(scene) as address:
        yield int(address.strip("/").rpartition(":")[2])


def sent(port, method, path, body=b"", **headers):
    """Status, headers and content of the answer; `_` in names of headers is `-`."""
    given = {"Host": f"{HOST}:{port}"} | {k.replace("_", "-"): v for k, v in headers.items()}
    connection = http.client.HTTPConnection(HOST, port, timeout=60)
    with contextlib.closing(connection):
        connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
        for name, value in given.items():
            connection.putheader(name, value)
        if method == "POST" and "Content-Length" not in given:
            connection.putheader("Content-Length", str(len(body)))
        connection.endheaders(body)
        answer = connection.getresponse()
        return answer.status, dict(answer.headers), answer.read()


def asked(port, path, values):
    """The status of the answer, and its parts."""
    body = values if isinstance(values, bytes) else json.dumps(values).encode()
    status, _, content = sent(port, "POST", path, body, Origin=f"http://{HOST}:{port}")
    return status, [json.loads(line) for line in content.splitlines()]


def pixels(url):
    with Image.open(io.BytesIO(base64.b64decode(url.partition("base64,")[2]))) as image:
        return np.array(image)


def as_file(name, content):
    return {"file": {"name": name, "content": base64.b64encode(content).decode()}}


def test_the_page_and_its_pictures(port, scene):
    for address in ADDRESSES:
        status, headers, content = sent(port, "GET", address)
        assert status == 200 and content
        assert "default-src 'none'" in headers["Content-Security-Policy"]
    status, (found,) = asked(port, "/picture", FIRST | {"seed": 7, "label": 1})
    assert (status, found["name"]) == (200, "seed0007-y")
    view = View(7, 1)
    assert np.array_equal(pixels(found["picture"]), render(scene, view))
    assert found["styles"] == styles_text(final_styles(scene, view))


OTHERS = {
    "a name that DNS leads here": {"Host": "example.org"},
    "such a name with the port": {"Host": "example.org:{port}"},
    "a name that begins like ours": {"Host": "127.0.0.1.example.org:{port}"},
    "no name": {"Host": ""},
    "another page": {"Origin": "https://example.org"},
    "another page of this computer": {"Origin": "http://localhost:3000"},
    "a page without a name": {"Origin": "null"},
    "another scheme": {"Origin": "https://127.0.0.1:{port}"},
    "another site, by a link or form": {"Sec_Fetch_Site": "cross-site"},
    "another page of this site": {"Sec_Fetch_Site": "same-site"},
}


@pytest.mark.parametrize("headers", OTHERS.values(), ids=OTHERS)
def test_other_pages_get_no_answer(port, headers):
    headers = {name: value.format(port=port) for name, value in headers.items()}
    body = json.dumps(FIRST).encode()
    for method, paths in (("GET", ADDRESSES), ("POST", QUESTIONS)):
        own = {"Origin": f"http://{HOST}:{port}"} if method == "POST" else {}
        for path in paths:
            status, found, content = sent(port, method, path, body, **own | headers)
            assert status in (403, 421) and list(json.loads(content)) == ["error"]
            assert not [name for name in found if name.startswith("Access-Control")]


def test_requests_without_an_origin_and_preflights_get_no_answer(port):
    assert sent(port, "POST", "/picture", json.dumps(FIRST).encode())[0] == 403
    for method in ("OPTIONS", "PUT", "HEAD", "DELETE", "CONNECT"):
        status, headers, _ = sent(port, method, "/picture", Origin="http://example.org")
        assert status == 501 and "Access-Control-Allow-Origin" not in headers


def test_the_page_answers_under_the_port_of_a_tunnel(port):
    body, names = (
        json.dumps(FIRST).encode(),
        {"Host": "localhost:9", "Origin": "http://localhost:9"},
    )
    assert sent(port, "POST", "/picture", body, Sec_Fetch_Site="same-origin", **names)[0] == 200
    assert sent(port, "GET", "/", Sec_Fetch_Site="none")[0] == 200


@pytest.mark.parametrize("path", ["/config", "/upload", "/../pyproject.toml", "/page.py", "x"])
def test_there_is_nothing_else(port, path):
    for method in ("GET", "POST"):
        status, _, content = sent(port, method, path, b"{}", Origin=f"http://{HOST}:{port}")
        assert status == 404 and b"no such page" in content


NONSENSE = [None, True, -1, 0.5, 1e306, 10**400, "", "x" * 5000, "\ud800", [[]], {"a": 1}]


def test_no_value_of_a_control_is_a_traceback(port, capfd):
    for name in FIRST:
        for value in [*NONSENSE, float("nan"), float("inf")]:
            start = "points" if name in ("between", "from") else "seed"
            status, (found,) = asked(port, "/picture", FIRST | {"start": start, name: value})
            if status != 200:
                assert status == 400 and list(found) == ["error"]
                assert len(found["error"]) < 300 and "\n" not in found["error"]
            else:
                assert value in (True, -1, 0.5) or name in ("between", "from", "to")
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    "body", [b"", b"[]", b"3", b"\xff", b"{", b"[" * 100_000, b'{"seed":' + b"9" * 5000 + b"}"]
)
def test_what_is_no_object_is_refused(port, body, capfd):
    status, (found,) = asked(port, "/picture", body)
    assert (status, found) == (400, {"error": "the request is not a JSON object"})
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("length", "status"), [("x", 411), ("-1", 411), ("", 411), ("²", 411), (str(2**26), 413)]
)
def test_the_length_is_checked_before_anything_is_read(port, length, status):
    origin = f"http://{HOST}:{port}"
    assert sent(port, "POST", "/load", Origin=origin, Content_Length=length)[0] == status


def test_latents_are_loaded_again(port, scene, tmp_path):
    status, (file,) = asked(port, "/latents", FIRST | {"seed": 3, "noise": "random"})
    content = base64.b64decode(file["content"])
    assert (status, file["name"]) == (200, "seed0003-a_b")
    status, (found,) = asked(port, "/load", {"label": 0, **as_file("a/mine.npz", content)})
    assert (status, found["title"], found["noise"]) == (200, "mine.npz", True)
    styles = final_styles(scene, View(3, 0))
    assert found["styles"] == styles_text(styles)
    assert np.array_equal(pixels(found["picture"]), render(scene, View(styles=styles)))
    write_latents(tmp_path / "l.npz", styles.expand(2, -1, -1))
    several = {"label": 0, **as_file("l.npz", (tmp_path / "l.npz").read_bytes())}
    assert [part["title"] for part in asked(port, "/load", several)[1]] == ["l.npz, 0", "l.npz, 1"]
    assert len(read_latents(tmp_path / "l.npz", scene.generator).ws) == 2


def test_latents_that_cannot_be_are_refused_by_their_short_name(port, tmp_path):
    def told(content):
        return asked(port, "/load", {"label": 0, **as_file("/home/me/l.npz", content)})

    for content in (b"", b"PK\x03\x04", os.urandom(1000)):
        status, (found,) = told(content)
        assert status == 400 and found["error"].startswith("l.npz is ")
        assert "/" not in found["error"]
    for name, shape in (("many", (101, 6, 8)), ("foreign", (1, 7, 8))):
        np.savez(tmp_path / f"{name}.npz", ws=np.zeros(shape, np.float32))
    status, (found,) = told((tmp_path / "many.npz").read_bytes())
    assert (status, found["error"]) == (400, "l.npz has 101 latents; at most 100 can be loaded")
    status, (found,) = told((tmp_path / "foreign.npz").read_bytes())
    assert status == 400 and found["error"].startswith("l.npz: ws is (1, 7, 8)")


def test_a_search_tells_how_it_goes_and_gives_a_point(port, scene):
    buffer = io.BytesIO()
    sampling.picture(render(scene, View(3, 0, 0.5))).save(buffer, "PNG")
    options = {"label": 0, "steps": 20, "each_layer": True, "tune": False}
    status, parts = asked(port, "/search", options | as_file("mine.png", buffer.getvalue()))
    assert status == 200 and parts[0]["caption"] == "wanted: mine.png"
    assert [part["caption"].partition(" ·")[0] for part in parts[1:]] == [
        f"step {i} of 20" for i in range(21)
    ]
    assert parts[-1]["title"].startswith("mine.png, ")
    given = FIRST | {"start": "points", "from": parts[-1]["styles"], "to": parts[-1]["styles"]}
    again = asked(port, "/picture", given)[1][0]["picture"]
    assert np.abs(pixels(again).astype(int) - pixels(parts[-1]["picture"])).max() <= 1
    for changes, error in [
        ({"steps": 1001}, "steps is a whole number from 1 to 1000, not 1001"),
        (as_file("bad.png", b"no picture"), "bad.png: not a PNG"),
        ({"file": None}, "choose a file first"),
    ]:
        file = as_file("mine.png", buffer.getvalue())
        status, (found,) = asked(port, "/search", options | file | changes)
        assert status == 400 and found["error"].startswith(error)


def test_a_generator_is_tuned_shown_filmed_and_downloaded(tmp_path):
    scene = explored()
    scene.lineage = [Source("official.pkl", "0" * 64, NVIDIA)]
    target = render(scene, View(3, 0, 0.5)) // 2 + 60  # not what it makes
    buffer = io.BytesIO()
    sampling.picture(target).save(buffer, "PNG")
    options = {"label": 0, "steps": 5, "each_layer": False, "tune": True, "tune_steps": 40}
    with serving(scene) as address:
        port = int(address.strip("/").rpartition(":")[2])
        status, parts = asked(port, "/search", options | as_file("mine.png", buffer.getvalue()))
        assert status == 200
        captions = [part["caption"].partition(" ·")[0] for part in parts]
        assert captions[6:9] == ["step 5 of 5", "tuning, step 0 of 40", "tuning, step 1 of 40"]
        last = parts[-1]
        assert last["caption"].startswith("tuned, step 40 of 40 · ")
        assert last["title"].startswith("mine.png, tuned, ")
        given = FIRST | {"start": "points", "from": last["styles"], "to": last["styles"]}

        def shown(number):
            (found,) = asked(port, "/picture", given | {"tuned": number})[1]
            return pixels(found["picture"]).astype(int), found["caption"]

        (before, _), (after, caption) = shown(0), shown(last["tuned"])
        assert np.abs(after - target).mean() < 0.9 * np.abs(before - target).mean()
        assert np.abs(after - pixels(last["picture"])).max() <= 1
        assert caption.endswith(" · tuned generator")
        (found,) = asked(port, "/tuned", {"tuned": last["tuned"]})[1]
        (tmp_path / found["name"]).write_bytes(base64.b64decode(found["content"]))
        loaded = load_source(tmp_path / "tuned.pt")
        assert loaded.lineage[0].licence == NVIDIA
        assert_same_weights(loaded.generator, scene.network(last["tuned"]).generator)
        film = {"tuned": 1, "film_seconds": 0.1, "loop": False, "ease": False, "noise": "const"}
        film["points"] = [last["styles"]] * 2
        assert asked(port, "/film", film)[0] == 200
        for path, changes, error in [
            ("/picture", {"tuned": 2}, "only the last 3 tuned generators are kept; choose the"),
            ("/film", film | {"tuned": 2}, "only the last 3 tuned generators are kept; choose the"),
            ("/tuned", {"tuned": 0}, "the original generator is shown; choose a tuned one"),
            ("/picture", {"tuned": None}, "tuned is a whole number from 0 to"),
        ]:
            status, (found,) = asked(port, path, FIRST | changes)
            assert status == 400 and found["error"].startswith(error)
        for _ in range(3):
            scene.keep(scene.loaded)
        assert list(scene.tuned) == [2, 3, 4]


def test_activations_come_as_a_contact_sheet(port):
    status, (found,) = asked(port, "/activations", FIRST | {"activations_layer": 5})
    assert status == 200 and pixels(found["picture"]).shape == (2 * 257, 4 * 257)
    assert found["caption"].startswith("layer 5: 8 channels of 16×16, -")  # noqa: RUF001
    for changes, error in [
        ({"activations_layer": 6}, "activations_layer is a whole number from 0 to 5, not 6"),
        ({}, "activations_layer is a whole number from 0 to 5, not empty"),
        ({"activations_layer": 5, "growth": 3}, "a picture of 8x8 has layers 0 to 3, not 5"),
    ]:
        status, (found,) = asked(port, "/activations", FIRST | changes)
        assert status == 400 and found["error"] == error


def test_saved_points_become_keyframes_and_a_film(port, scene, tmp_path):
    points = [final_styles(scene, View(seed, 0)) for seed in (1, 2, 3)]
    options = {"tuned": 0, "film_seconds": 0.2, "loop": False, "ease": True, "noise": "const"}
    given = options | {"points": [styles_text(styles) for styles in points]}
    (found,) = asked(port, "/keyframes", given)[1]
    (tmp_path / found["name"]).write_bytes(base64.b64decode(found["content"]))
    keyframes = read_keyframes(tmp_path / "keyframes.json", scene.loaded)
    assert np.array_equal(keyframes.ws, np.stack(points))
    assert (keyframes.seconds, keyframes.loop, keyframes.ease) == ([0.2] * 3, False, True)
    status, parts = asked(port, "/film", given)
    assert status == 200
    assert [part["note"] for part in parts[:-1]] == [f"frame {i + 1} of 10" for i in range(10)]
    kind, _, content = parts[-1]["content"].partition(";base64,")
    file = base64.b64decode(content)
    if kind == "data:video/mp4":
        assert parts[-1]["name"] == "film.mp4" and file[4:8] == b"ftyp"
    else:
        assert parts[-1]["name"] == "film.webp" and file[8:12] == b"WEBP"
    for changes, error in [
        ({"points": given["points"][:1]}, "save at least two points"),
        ({"points": ["AAAA", "AAAA"]}, "the saved point is of another network"),
        ({"film_seconds": -1}, "film_seconds is a number from 0.1 to 60, not -1"),
        ({"loop": 1}, "loop is one of False, True, not 1"),
    ]:
        status, (found,) = asked(port, "/film", given | changes)
        assert status == 400 and found["error"].startswith(error)


def test_it_tells_no_path(port):
    (found,) = asked(port, "/scene", {})[1]
    assert found["largest_seed"] == sampling.MAX_SEED and found["layers"] == 6
    text = json.dumps(found) + str(sent(port, "GET", "/"))
    assert os.getcwd() not in text and "/home" not in text and "/tmp" not in text


def test_a_browser_that_goes_away_is_no_fault(port, capfd):
    body = json.dumps(FIRST).encode()
    head = "POST /picture HTTP/1.1\r\nHost: localhost\r\nOrigin: http://localhost\r\n"
    for length in (len(body), len(body) + 9):
        with socket.create_connection((HOST, port)) as client:
            client.sendall(f"{head}Content-Length: {length}\r\n\r\n".encode() + body)
    assert asked(port, "/picture", FIRST)[0] == 200
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("tune", [False, True])
def test_it_ends_at_once_although_requests_and_searches_are_open(
    tmp_path, monkeypatch, capfd, tune
):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    scene, threads = explored(), set(threading.enumerate())
    buffer = io.BytesIO()
    sampling.picture(render(scene, View(0, 0))).save(buffer, "PNG")
    with contextlib.ExitStack() as clients:
        with serving(scene) as address:
            port = int(address.strip("/").rpartition(":")[2])
            head = "POST /search HTTP/1.1\r\nHost: localhost\r\nOrigin: http://localhost\r\n"
            options = {"label": 0, "steps": 1 if tune else 1000, "each_layer": False}
            options |= {"tune": tune, "tune_steps": 1000}
            body = json.dumps(options | as_file("p.png", buffer.getvalue())).encode()
            for length in (len(body), len(body), len(body) + 1):  # searches, waits, is incomplete
                client = clients.enter_context(socket.create_connection((HOST, port)))
                client.sendall(f"{head}Content-Length: {length}\r\n\r\n".encode() + body)
                if length == len(body):
                    assert b"200 OK" in client.recv(99)
            clients.enter_context(socket.create_connection((HOST, port)))  # asks nothing
            assert asked(port, "/picture", FIRST)[0] == 200
            start = time.monotonic()
        assert time.monotonic() - start < 20
    assert set(threading.enumerate()) == threads
    assert not list(tmp_path.glob("stylegan*"))
    assert capfd.readouterr() == ("", "")


def test_a_port_that_is_taken_is_refused(port, scene):
    with (
        pytest.raises(OSError, match=rf"port {port} of 127\.0\.0\.1 cannot be used"),
        serving(scene, port=port),
    ):
        pass
