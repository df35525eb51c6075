"""URLs, called for real: by servers on this machine that mean well, and by some that do not."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bullite.commands import webhook
from bullite.commands.webhook import (
    MAX_BODY,
    WebhookFailed,
    WebRequest,
    WebResponse,
    call,
    check,
    deliver,
    is_public,
    sign,
    verify_signature,
)
from tests.commands.servers import listening

SECRET = b"between us"


def ask(url: str, **options: Any) -> WebResponse:
    return call(WebRequest(url, **{"timeout": 5.0, "allow_private": True} | options))


def failure_of(url: str, **options: Any) -> WebhookFailed:
    with pytest.raises(WebhookFailed) as failed:
        deliver(WebRequest(url, **{"timeout": 5.0, "allow_private": True} | options))
    return failed.value


def refusal_of(url: str, **options: Any) -> str:
    failure = failure_of(url, **options)
    assert failure.is_final
    assert failure.status is None
    return str(failure)


# --- servers -------------------------------------------------------------------------------------


class Server(HTTPServer):
    """Answers what it is told to, and remembers what it was sent."""

    status = 200
    answers: dict[str, str]

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.answers = {}
        self.heard: list[tuple[str, str, dict[str, str], bytes]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/hook"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"] or 0))
        self.server.heard.append((self.command, self.path, dict(self.headers), body))
        self.send_response(self.server.status)
        for name, value in self.server.answers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"ok")

    do_GET = do_POST

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@contextlib.contextmanager
def serving(talk: Callable[[socket.socket], None]) -> Iterator[str]:
    """A server that says whatever it likes; its URL."""
    with listening(talk) as port:
        yield f"http://127.0.0.1:{port}/"


def says(*parts: bytes, again: bytes = b"", every: float = 0.0) -> Callable[[socket.socket], None]:
    """Hears one request, then says the parts, then `again` for ever."""

    def talk(line: socket.socket) -> None:
        line.recv(65_536)
        line.sendall(b"".join(parts))
        while again:
            line.sendall(again)
            time.sleep(every)

    return talk


OK = b"HTTP/1.1 200 OK\r\n"


# --- what is sent --------------------------------------------------------------------------------


def test_a_call_brings_back_status_headers_and_body(server: Server) -> None:
    server.answers["X-Thing"] = "7"
    answer = ask(server.url, body=b"{}")
    assert (answer.status, answer.body) == (200, b"ok")
    assert answer.headers["x-thing"] == "7"


def test_path_query_and_body_arrive_as_they_were_given(server: Server) -> None:
    ask(server.url + "/a%20b/ü?x=1&y=%00#part", body=b"\x00\xff")
    method, path, _, body = server.heard[0]
    assert (method, path, body) == ("POST", "/hook/a%20b/%C3%BC?x=1&y=%00", b"\x00\xff")


def test_the_usual_headers_are_sent_unless_others_are_given(server: Server) -> None:
    ask(server.url, id=("emails", "17"))
    ask(server.url, headers={"content-type": "text/plain", "X-More": "1"})
    first, second = server.heard[0][2], server.heard[1][2]
    assert (first["User-Agent"], first["Content-Type"]) == ("bullite", "application/json")
    assert first["Bullite-Delivery"] == "emails:17"
    assert (second["content-type"], second["X-More"]) == ("text/plain", "1")
    assert "Content-Type" not in second
    assert "Bullite-Signature" not in second


def test_any_method_may_be_used(server: Server) -> None:
    assert ask(server.url, method="GET").status == 200
    assert server.heard[0][0] == "GET"


def test_the_host_header_names_the_port_that_is_not_usual(server: Server) -> None:
    ask(server.url)
    assert server.heard[0][2]["Host"] == f"127.0.0.1:{server.server_port}"


@pytest.mark.parametrize(
    "headers",
    [
        {"X-Bad": "a\r\nX-Injected: 1"},
        {"X-Bad": "a\nb"},
        {"X-Bad": "a\0b"},
        {"X-Bad": "snow \N{SNOWMAN}"},
        {"X Bad": "a"},
        {"X-Bad:": "a"},
        {"": "a"},
        {"Host": "elsewhere"},
        {"content-LENGTH": "0"},
        {"Transfer-Encoding": "chunked"},
        {"Bullite-Signature": "t=1,v1=00"},
    ],
)
def test_headers_that_would_change_the_message_are_refused(
    headers: dict[str, str], server: Server
) -> None:
    assert "header" in refusal_of(server.url, headers=headers)
    assert server.heard == []


@pytest.mark.parametrize("method", ["", "get", "GET / HTTP/1.1\r\nX:", "A B"])
def test_a_method_is_one_word(method: str, server: Server) -> None:
    assert "method" in refusal_of(server.url, method=method)


def test_a_delivery_id_cannot_bring_headers_along(server: Server) -> None:
    ask(server.url, id=("1\r\nX-Injected: 1",))
    headers = server.heard[0][2]
    assert headers["Bullite-Delivery"] == "1%0D%0AX-Injected%3A%201"
    assert "X-Injected" not in headers


def test_a_delivery_id_may_have_any_characters_and_is_no_other(server: Server) -> None:
    for id in (("почта", "№1 \udc80"), ("a:b", "c"), ("a", "b:c")):
        ask(server.url, id=id)
    told = [heard[2]["Bullite-Delivery"] for heard in server.heard]
    assert told == ["%D0%BF%D0%BE%D1%87%D1%82%D0%B0:%E2%84%961%20%3F", "a%3Ab:c", "a:b%3Ac"]


@pytest.mark.parametrize(
    "options",
    [
        {"url": "ftp://example.com"},
        {"url": "https://me:hidden@example.com"},
        {"method": "get"},
        {"headers": {"Host": "elsewhere"}},
        {"headers": {"A": "\x07"}},
        {"timeout": 7_200},
    ],
)
def test_what_can_only_be_refused_is_known_before_it_is_called(options: dict[str, Any]) -> None:
    with pytest.raises(WebhookFailed) as failed:
        check(WebRequest(**{"url": "https://no-such-host.invalid"} | options))
    assert failed.value.is_final
    assert "hidden" not in str(failed.value)


def test_what_may_be_called_is_not_called_to_be_checked(server: Server) -> None:
    check(WebRequest(server.url))
    assert server.heard == []


@pytest.mark.parametrize("timeout", [0.0, -1.0, float("nan"), float("inf")])
def test_a_timeout_must_be_one(timeout: float, server: Server) -> None:
    assert "timeout" in refusal_of(server.url, timeout=timeout)


# --- signatures ----------------------------------------------------------------------------------


def test_a_receiver_can_tell_that_a_call_is_ours(server: Server) -> None:
    ask(server.url, body=b'{"a":1}', secret=SECRET, now=lambda: 1_000.9)
    _, _, headers, body = server.heard[0]
    header = headers["Bullite-Signature"]
    assert header.startswith("t=1000,v1=")
    assert verify_signature(SECRET, body, header, now=lambda: 1_001.0)


@pytest.mark.parametrize(
    ("secret", "body", "now"),
    [
        (b"other", b"body", 1_000.0),
        (SECRET, b"Body", 1_000.0),
        (SECRET, b"body", 1_301.0),
        (SECRET, b"body", 699.0),
        (b"", b"body", 1_000.0),
    ],
    ids=["another secret", "another body", "too old", "from the future", "no secret"],
)
def test_what_is_not_ours_is_not_verified(secret: bytes, body: bytes, now: float) -> None:
    header = sign(SECRET, b"body", 1_000.0)
    assert verify_signature(SECRET, b"body", header, now=lambda: 1_000.0)
    assert not verify_signature(secret, body, header, now=lambda: now)


@pytest.mark.parametrize(
    "header",
    [
        "",
        "t=",
        "v1=00",
        "t=1000",
        "t=1000,v1=",
        "t=x,v1=y",
        "t=1000,v1=é\udc80",
        "t=1,t=1000,v1=a",
        "t=" + "9" * 5_000 + ",v1=a",
        "t=-1000,v1=a",
        "t=١٠٠٠,v1=a",
    ],
)
def test_a_header_that_is_no_signature_verifies_nothing(header: str) -> None:
    assert not verify_signature(SECRET, b"body", header, now=lambda: 1_000.0)


def test_one_right_signature_among_several_is_enough() -> None:
    header = sign(SECRET, b"body", 1_000.0).replace("v1=", "v1=00, v1=")
    assert verify_signature(SECRET, b"body", header, now=lambda: 1_000.0)


def test_an_empty_secret_is_refused(server: Server) -> None:
    assert "secret" in refusal_of(server.url, secret=b"")


def test_secrets_are_not_shown() -> None:
    request = WebRequest("http://x/", secret=SECRET, headers={"Authorization": "hidden"})
    assert "between us" not in repr(request)
    assert "hidden" not in repr(request)


# --- URLs that are refused -----------------------------------------------------------------------


@pytest.mark.parametrize(
    "url",
    [
        "file:///etc/passwd",
        "ftp://example.com/",
        "gopher://example.com/",
        "//example.com/",
        "example.com",
        "",
        "http:///path",
        "http://",
        "http://:80/",
        "http://example.com:0/",
        "http://example.com:99999/",
        "http://example.com:x/",
        "http://[::1/",
        "http://[zz::]/",
        "http://[fe80::1%25lo]/",
        "http://user:password@example.com/",
        "http://user@example.com/",
        "http://a\\@example.com/",
        "http://exa mple.com/",
        "http://example.com/a b",
        "http://example.com/\r\nX-Injected: 1",
        "http://example.com\r\n/",
        "\thttp://example.com/",
        "http://example.com/\x00",
        "http://example.com/\x7f",
        "http://example.com/\u2028",
        "http://a..b/",
        "http://%31%32%37.0.0.1/",
        "http://" + "a" * 300 + "/",
        "http://example.com/" + "a" * 9_000,
    ],
)
def test_what_is_no_plain_web_address_is_refused(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "getaddrinfo", _never)
    assert refusal_of(url).startswith("The call is refused: ")


def _never(*_: Any, **__: Any) -> Any:
    raise AssertionError("it was looked up")


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1",
        "127.1",
        "2130706433",
        "0x7f000001",
        "0177.0.0.1",
        "0",
        "①②⑦.0.0.1",
        "localhost",
        "LOCALHOST",
        "[::1]",
        "[::]",
        "[::ffff:127.0.0.1]",
        "[::ffff:7f00:1]",
        "[64:ff9b::7f00:1]",
        "[fd00:ec2::254]",
        "10.0.0.1",
        "169.254.169.254",
        "100.64.0.1",
    ],
)
def test_a_private_address_is_refused_unless_allowed(host: str) -> None:
    message = refusal_of(f"http://{host}:9/", allow_private=False)
    assert "private address" in message or "no name" in message


def test_a_private_address_may_be_allowed(server: Server) -> None:
    assert "private" in refusal_of(server.url, allow_private=False)
    assert ask(server.url, allow_private=True).status == 200


@pytest.mark.parametrize(
    ("address", "public"),
    [
        ("8.8.8.8", True),
        ("2606:4700:4700::1111", True),
        ("64:ff9b::808:808", True),
        ("2002:808:808::1", True),
        ("127.0.0.1", False),
        ("0.0.0.0", False),
        ("10.1.2.3", False),
        ("172.16.0.1", False),
        ("192.168.1.1", False),
        ("169.254.169.254", False),
        ("100.100.100.200", False),
        ("192.0.0.192", False),
        ("168.63.129.16", False),
        ("198.18.0.1", False),
        ("224.0.0.1", False),
        ("239.1.1.1", False),
        ("240.0.0.1", False),
        ("255.255.255.255", False),
        ("::", False),
        ("::1", False),
        ("::127.0.0.1", False),
        ("::ffff:8.8.8.8", False),
        ("64:ff9b::a00:1", False),
        ("64:ff9b:1::808:808", False),
        ("2002:7f00:1::", False),
        ("2001:0:4136:e378::", False),
        ("2001:db8::1", False),
        ("3fff::1", False),
        ("fc00::1", False),
        ("fe80::1", False),
        ("fe80::1%eth0", False),
        ("fec0::1", False),
        ("ff0e::1", False),
        ("nonsense", False),
    ],
)
def test_public_is_what_the_whole_internet_may_call(address: str, public: bool) -> None:
    assert is_public(address) == public


def answering(*addresses: str, port: int = 80) -> Callable[..., Any]:
    """A name service that knows these addresses for every name."""
    found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (one, port)) for one in addresses]
    return lambda *_, **__: found


@pytest.mark.parametrize(
    "addresses", [("8.8.8.8", "10.0.0.1"), ("10.0.0.1", "8.8.8.8")], ids=["last", "first"]
)
def test_one_private_address_among_public_ones_is_enough_to_refuse(
    addresses: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(socket, "getaddrinfo", answering(*addresses))
    monkeypatch.setattr(socket.socket, "connect", _never)
    message = refusal_of("http://two-faced.example/", allow_private=False)
    assert "two-faced.example is at a private address" in message
    assert "queuectl config set allow_private_webhooks true" in message


def test_a_name_is_looked_up_once_and_that_answer_is_connected_to(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def look_up(host: str, *_: Any, **__: Any) -> Any:
        asked.append(host)
        return answering("127.0.0.1", port=server.server_port)()

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    assert ask("http://rebinding.example/").status == 200
    assert asked == ["rebinding.example"]
    assert server.heard[0][2]["Host"] == "rebinding.example"


def test_an_address_nobody_listens_at_is_passed_over(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    addresses = answering("127.0.0.2", "127.0.0.1", port=server.server_port)
    monkeypatch.setattr(socket, "getaddrinfo", addresses)
    assert ask("http://some.example/").status == 200


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_is_not_followed(status: int, server: Server) -> None:
    with serving(says(OK, b"\r\n")) as other:
        server.status, server.answers = status, {"Location": other}
        failure = failure_of(server.url)
    assert (failure.status, failure.is_final) == (status, False)
    assert "redirects are not followed" in str(failure)
    assert len(server.heard) == 1


# --- answers that are no success -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "is_final"),
    [
        (400, True),
        (401, True),
        (404, True),
        (410, True),
        (408, False),
        (425, False),
        (429, False),
        (500, False),
        (502, False),
        (503, False),
    ],
)
def test_a_call_that_was_not_liked_is_made_again_unless_that_is_no_use(
    status: int, is_final: bool, server: Server
) -> None:
    server.status = status
    failure = failure_of(server.url + "?token=hidden")
    assert (failure.status, failure.is_final, failure.retry_after) == (status, is_final, None)
    assert str(failure) == f"127.0.0.1 answered {status}"


@pytest.mark.parametrize("status", [200, 201, 202, 206])
def test_all_that_begins_with_two_is_a_success(status: int, server: Server) -> None:
    server.status = status
    assert deliver(WebRequest(server.url, allow_private=True)).status == status


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0", 0.0),
        ("120", 120.0),
        (" 7 ", 7.0),
        ("99999999", 86_400.0),
        ("9" * 5_000, 86_400.0),
        ("Thu, 01 Jan 1970 00:18:40 GMT", 120.0),
        ("Thu, 01 Jan 1970 00:18:40 -0000", 120.0),
        ("Thu, 01 Jan 1970 00:00:00 GMT", 0.0),
        ("Fri, 31 Dec 9999 23:59:59 GMT", 86_400.0),
        ("Fri, 31 Dec 9999 23:59:59 -2359", 86_400.0),
        ("-1", None),
        ("1.5", None),
        ("soon", None),
        ("", None),
    ],
)
def test_a_server_says_when_to_come_again(text: str, seconds: float | None, server: Server) -> None:
    server.status, server.answers = 503, {"Retry-After": text}
    assert failure_of(server.url, now=lambda: 1_000.0).retry_after == seconds


@pytest.mark.parametrize("status", [400, 404, 500, 302])
def test_only_who_is_too_busy_says_when_to_come_again(status: int, server: Server) -> None:
    server.status, server.answers = status, {"Retry-After": "5"}
    assert failure_of(server.url).retry_after is None


# --- servers that are slow, or never done --------------------------------------------------------


@pytest.mark.parametrize(
    "talk",
    [
        says(again=b"H", every=0.02),
        says(OK, again=b"X: 1\r\n", every=0.02),
        says(OK, b"Content-Length: 1000\r\n\r\n", again=b"x", every=0.02),
        says(OK, b"Transfer-Encoding: chunked\r\n\r\n", again=b"1\r\nx\r\n", every=0.02),
        says(OK, b"\r\n", again=b"x", every=0.02),
    ],
    ids=["status", "headers", "body", "chunks", "body without end"],
)
def test_the_deadline_holds_against_who_drips(talk: Callable[[socket.socket], None]) -> None:
    began = time.monotonic()
    with serving(talk) as url:
        failure = failure_of(url, timeout=0.3)
    assert time.monotonic() - began < 5
    assert not failure.is_final
    assert str(failure) == "127.0.0.1 did not answer within 0.3 s"


def test_the_deadline_holds_against_who_never_says_anything() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/"
        assert "within 0.2 s" in str(failure_of(url, timeout=0.2))


def test_the_deadline_holds_against_who_does_not_listen() -> None:
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        url = f"http://127.0.0.1:{deaf.getsockname()[1]}/"
        assert "within 0.3 s" in str(failure_of(url, timeout=0.3, body=bytes(20_000_000)))


def test_the_deadline_holds_against_a_name_service_that_hangs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    release = threading.Event()

    def hang(*_: Any, **__: Any) -> Any:
        release.wait(20)
        raise socket.gaierror(socket.EAI_AGAIN, "too late")

    monkeypatch.setattr(socket, "getaddrinfo", hang)
    try:
        assert "hung.example did not answer" in str(failure_of("http://hung.example", timeout=0.2))
    finally:
        release.set()


def test_only_so_many_names_are_looked_up_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhook, "_queries", threading.BoundedSemaphore(1))
    webhook._queries.acquire()
    monkeypatch.setattr(socket, "getaddrinfo", _never)
    assert "did not answer within 0.1 s" in str(failure_of("http://late.example", timeout=0.1))


@pytest.mark.parametrize(
    "talk",
    [
        says(OK, b"\r\n", again=b"x" * 10_000),
        says(OK, b"Content-Length: 99999999999\r\n\r\n", again=b"x" * 10_000),
        says(OK, b"Transfer-Encoding: chunked\r\n\r\n", again=b"400\r\n" + b"x" * 1024 + b"\r\n"),
        says(OK, b"Transfer-Encoding: chunked\r\n\r\n", again=b"1\r\nx\r\n" * 1_000),
    ],
    ids=["plain", "announced", "chunks", "tiny chunks"],
)
def test_of_an_endless_body_only_the_head_is_kept(talk: Callable[[socket.socket], None]) -> None:
    with serving(talk) as url:
        answer = ask(url)
    assert answer.status == 200
    assert answer.body == b"x" * MAX_BODY


def test_chunks_that_are_mostly_wrapping_are_not_read_for_ever() -> None:
    chunk = b"1;" + b"a" * 60_000 + b"\r\nx\r\n"
    with serving(says(OK, b"Transfer-Encoding: chunked\r\n\r\n", again=chunk)) as url:
        answer = ask(url)
    assert len(answer.body) < 100


@pytest.mark.parametrize("size", [MAX_BODY, MAX_BODY + 1])
def test_of_a_long_body_the_head_is_kept(size: int) -> None:
    head = OK + f"Content-Length: {size}\r\n\r\n".encode()
    with serving(says(head, b"x" * size)) as url:
        answer = ask(url)
    assert len(answer.body) == MAX_BODY


@pytest.mark.parametrize(
    "parts",
    [
        (b"Content-Length: 10\r\n\r\n", b"abc"),
        (b"Transfer-Encoding: chunked\r\n\r\n", b"3\r\nabc\r\na\r\nd"),
        (b"Transfer-Encoding: chunked\r\n\r\n", b"3\r\nabc\r\nno number\r\n"),
    ],
    ids=["announced", "chunk", "nonsense"],
)
def test_an_answer_that_breaks_off_is_an_answer(parts: tuple[bytes, ...]) -> None:
    with serving(says(OK, *parts)) as url:
        answer = ask(url)
    assert (answer.status, answer.body) == (200, b"abc")


@pytest.mark.parametrize(
    "talk",
    [
        says(OK, again=b"X: 1\r\n" * 1_000),
        says(OK, b"X: ", again=b"x" * 10_000),
        says(b"HTTP/1.1 ", again=b"x" * 10_000),
        says(again=b"HTTP/1.1 100 Continue\r\n\r\n" * 1_000),
    ],
    ids=["many", "long", "status", "continue"],
)
def test_a_flood_of_headers_is_not_read_for_ever(talk: Callable[[socket.socket], None]) -> None:
    with serving(talk) as url:
        failure = failure_of(url)
    assert not failure.is_final
    assert str(failure).removeprefix("127.0.0.1 ") in (
        "sent more headers than are read",
        "did not answer in proper HTTP",
    )


def test_an_answer_is_heard_though_the_body_was_not_listened_to() -> None:
    def talk(line: socket.socket) -> None:
        line.recv(1)
        line.sendall(b"HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n")
        line.shutdown(socket.SHUT_WR)
        while line.recv(1 << 20):
            pass

    with serving(talk) as url:
        assert failure_of(url, body=bytes(1_000_000)).status == 413


# --- what else goes wrong on the way -------------------------------------------------------------


@pytest.mark.parametrize(
    ("talk", "problem"),
    [
        (lambda line: line.recv(65_536), "broke off the connection"),
        (says(b"SSH-2.0-OpenSSH_9.6\r\n"), "did not answer in proper HTTP"),
        (says(b"HTTP/1.1 abc\r\n\r\n"), "did not answer in proper HTTP"),
    ],
    ids=["silence", "another protocol", "nonsense"],
)
def test_a_server_that_does_not_speak_http_is_said_to(
    talk: Callable[[socket.socket], None], problem: str
) -> None:
    with serving(talk) as url:
        failure = failure_of(url + "?token=hidden", headers={"Authorization": "hidden"})
    assert str(failure) == f"127.0.0.1 {problem}"
    assert not failure.is_final


def test_a_port_nobody_listens_at_is_said_to_refuse() -> None:
    with socket.create_server(("127.0.0.1", 0)) as gone:
        port = gone.getsockname()[1]
    assert str(failure_of(f"http://127.0.0.1:{port}/?q=hidden")) == (
        "127.0.0.1 refused the connection"
    )


def test_a_name_that_nobody_knows_may_be_known_later(monkeypatch: pytest.MonkeyPatch) -> None:
    def look_up(*_: Any, **__: Any) -> Any:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    failure = failure_of("http://nobody.example/?q=hidden")
    assert str(failure) == "nobody.example could not be found: Name or service not known"
    assert not failure.is_final


# --- TLS -----------------------------------------------------------------------------------------


@pytest.fixture
def tls_port(certificate: Path) -> Iterator[int]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)

    def talk(line: socket.socket) -> None:
        with context.wrap_socket(line, server_side=True) as secured:
            says(OK, b"Content-Length: 2\r\n\r\nok")(secured)

    with serving(talk) as url:
        yield int(url.rstrip("/").rpartition(":")[2])


def test_a_trusted_certificate_of_that_name_is_taken(
    tls_port: int, certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    assert ask(f"https://localhost:{tls_port}/").body == b"ok"


def test_a_certificate_of_another_name_is_not_trusted(
    tls_port: int, certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    monkeypatch.setattr(socket, "getaddrinfo", answering("127.0.0.1", port=tls_port))
    assert "certificate that is not trusted" in str(failure_of("https://other.example/"))


def test_a_certificate_that_nobody_vouches_for_is_not_trusted(tls_port: int) -> None:
    failure = failure_of(f"https://localhost:{tls_port}/?q=hidden")
    assert "localhost has a certificate that is not trusted" in str(failure)
    assert not failure.is_final


def test_who_does_not_speak_tls_is_said_to(server: Server) -> None:
    assert "over TLS" in str(failure_of(server.url.replace("http:", "https:")))


def test_the_deadline_holds_against_a_slow_handshake() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"https://127.0.0.1:{silent.getsockname()[1]}/"
        assert "within 0.2 s" in str(failure_of(url, timeout=0.2))


# --- answers that no server should give ----------------------------------------------------------


def answer_to(raw: bytes) -> WebResponse:
    """What is made of a connection on which these bytes come, and then nothing."""
    ours, theirs = socket.socketpair()
    with ours, theirs, pytest.MonkeyPatch.context() as patch:
        theirs.sendall(raw)
        theirs.shutdown(socket.SHUT_WR)
        patch.setattr(webhook, "_connect", lambda *_: ours)
        return call(WebRequest("http://example.com/", body=b"{}"))


CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize(
    ("raw", "body"),
    [
        (CHUNKED + b"-1\r\nabc", b"abc"),
        (CHUNKED + b"3\r\nabc\r\n-5\r\nabc\r\n0\r\n\r\n", b"abc"),
        (CHUNKED + b"-ffffffffffffffff\r\nabc", b""),
        (CHUNKED + b"7fffffffffffffff\r\nabc", b"abc"),
        (CHUNKED + b"ffffffffffffffffffffff\r\nabc", b"abc"),
        (CHUNKED + b"zz\r\nabc", b""),
        (CHUNKED + b"1_0\r\n0123456789abcdef\r\n0\r\n\r\n", b"0123456789abcdef"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\nabc", b"abc"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: " + b"9" * 30 + b"\r\n\r\nabc", b"abc"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: " + b"9" * 9_000 + b"\r\n\r\nabc", b"abc"),
    ],
)
def test_an_answer_with_sizes_that_cannot_be_is_cut_off_there(raw: bytes, body: bytes) -> None:
    assert body.startswith(answer_to(raw).body)


LINES = st.sampled_from(
    [
        *(b"HTTP/1.1 200 OK", b"HTTP/1.1 503 no", b"HTTP/1.1 100 Continue", b"HTTP/1.0 204 "),
        *(
            b"HTTP/1.1 -200 OK",
            b"HTTP/9.9 999 x",
            b"HTTP/1.1 \xb2\xb2\xb2 x",
            b"HTTP/",
            b"HTTP/1.1",
        ),
        *(b"Transfer-Encoding: chunked", b"Transfer-Encoding: \xff", b"Content-Length: -1"),
        *(b"Content-Length: 3", b"Content-Length: \xb2", b"Content-Length: 1e3", b"Location: //"),
        *(
            b"Retry-After: -1",
            b"Retry-After: \xb2",
            b"Retry-After: Mon, 99 Foo 99999 99:99:99 +9999",
        ),
        *(
            b"Content-Type: \x00",
            b": x",
            b" folded",
            b"x",
            b"=?utf-8?q?=ff?=: =?x?y?=",
            b"Set-Cookie:",
        ),
        *(b"", b"", b"", b"-1", b"3", b"abc", b"0", b"ffffffffffffffffff", b"+3", b"0x3", b"3;x=y"),
    ]
)
ANSWERS = st.lists(LINES | st.binary(max_size=8), max_size=14).flatmap(
    lambda lines: st.sampled_from([b"\r\n", b"\n"]).map(lambda end: end.join(lines))
)


@given(
    st.sampled_from([b"", b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 503 no\r\n", CHUNKED]),
    ANSWERS | st.binary(max_size=100),
)
@settings(max_examples=400, deadline=None)
def test_whatever_a_server_says_is_an_answer_or_a_failed_call(begin: bytes, rest: bytes) -> None:
    with contextlib.suppress(WebhookFailed):
        answer = answer_to(begin + rest)
        assert isinstance(answer.status, int)
        assert len(answer.body) <= webhook.MAX_BODY
        assert 0 <= (webhook._retry_after(answer, 0.0) or 0) <= webhook.MAX_WAIT


@given(st.text() | st.text("Mon, 31 Dec99:+-GMT\xb2", max_size=40))
def test_whatever_a_server_says_of_when_to_retry_is_bounded(text: str) -> None:
    answer = WebResponse(503, {"retry-after": text}, b"")
    assert 0 <= (webhook._retry_after(answer, 0.0) or 0) <= webhook.MAX_WAIT


def test_a_server_that_breaks_our_parser_is_a_failed_call(monkeypatch: pytest.MonkeyPatch) -> None:
    def burst(*_: Any, **__: Any) -> Any:
        raise AttributeError("no such thing")

    monkeypatch.setattr(webhook.http.client, "parse_headers", burst)
    with pytest.raises(WebhookFailed, match=r"example\.com did not answer in proper HTTP"):
        answer_to(b"HTTP/1.1 200 OK\r\n\r\n")
