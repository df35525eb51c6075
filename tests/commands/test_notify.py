"""Somebody told of a failure: by a mail server, a web server and commands, all of them real."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from email import message_from_bytes, policy
from email.message import EmailMessage
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from bullite.commands import notify as notifications
from bullite.commands.capture import HeadTail
from bullite.commands.notify import (
    Failure,
    MailServer,
    NotifyFailed,
    Security,
    kind_of,
    send_notification,
)
from bullite.commands.runner import EXITED, SIGNALLED, Command, CommandResult
from bullite.commands.webhook import verify_signature
from tests.commands.servers import listening

FAILURE = Failure(
    job_id="17",
    queue="reports",
    command="make report",
    reason="exit code 2",
    attempts=3,
    exit_code=2,
    failed_at=datetime(2024, 5, 6, 7, 8, 9, tzinfo=UTC),
    output_tail="no rule to make target",
)
HOSTILE = "a\r\nBcc: all@example.com\r\n\r\n\0$(touch x); `touch x` \udc80 ü \x1b[2J"


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def problem_with(target: str, failure: Failure = FAILURE, **options: Any) -> str:
    with pytest.raises(NotifyFailed) as failed:
        send_notification(target, failure, **{"mail": None} | options)
    message = str(failed.value)
    assert len(message.splitlines()) == 1
    return message


@pytest.mark.parametrize(
    ("target", "kind"),
    [
        ("http://example.com/hook", "url"),
        ("HTTPS://example.com", "url"),
        ("me@example.com", "mail"),
        ("first.last+jobs@mail.example.co.uk", "mail"),
        ("root@localhost", "mail"),
        ("jörg@bücher.example", "mail"),
        ("a@b@c", "command"),
        ("me@", "command"),
        ("@example.com", "command"),
        ("-f@example.com", "command"),
        ("me@-example.com", "command"),
        ("me@example.com\nBcc: you@example.com", "command"),
        ("me@example.com\n", "command"),
        ("me@example.com,you@example.com", "command"),
        ("Me <me@example.com>", "command"),
        ("mail me@example.com", "command"),
        ("./tell@home", "command"),
        ("$(tell)@home", "command"),
        ("ftp://example.com", "command"),
        ("notify-send failed", "command"),
        ("", "command"),
    ],
)
def test_how_somebody_is_told_is_seen_from_how_they_are_written(target: str, kind: str) -> None:
    assert kind_of(target) == kind


def test_somebody_must_be_named() -> None:
    assert "Nobody is named" in problem_with(" ")


# --- mail ----------------------------------------------------------------------------------------


class Post:
    """A mail server that takes one connection after the other, and keeps what it is given."""

    def __init__(self, certificate: Path | None = None, at_once: bool = False) -> None:
        self.refuses: dict[str, bytes] = {}
        self.heard: list[str] = []
        self.letters: list[EmailMessage] = []
        self._at_once = at_once
        self._tls: ssl.SSLContext | None = None
        if certificate is not None:
            self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self._tls.load_cert_chain(certificate)

    def __call__(self, line: socket.socket) -> None:
        if self._tls is not None and self._at_once:
            with self._tls.wrap_socket(line, server_side=True) as secured:
                self._talk(secured, offers_tls=False)
        else:
            self._talk(line, offers_tls=self._tls is not None)

    def _talk(self, line: socket.socket, offers_tls: bool, greet: bool = True) -> None:
        with line.makefile("rb") as lines:
            if greet:
                line.sendall(b"220 here\r\n")
            for said in lines:
                words = said.decode().strip()
                self.heard.append(words)
                verb = words.partition(" ")[0].upper()
                line.sendall(self.refuses.get(verb) or self._answer(verb, offers_tls))
                if verb == "DATA" and verb not in self.refuses:
                    self._take(lines)
                    line.sendall(self.refuses.get("END") or b"250 taken\r\n")
                elif verb == "STARTTLS" and self._tls is not None:
                    with self._tls.wrap_socket(line, server_side=True) as secured:
                        self._talk(secured, offers_tls=False, greet=False)
                    return

    def _answer(self, verb: str, offers_tls: bool) -> bytes:
        tls = b"250-STARTTLS\r\n" if offers_tls else b""
        return {
            "EHLO": b"250-here\r\n" + tls + b"250 AUTH PLAIN\r\n",
            "AUTH": b"235 welcome\r\n",
            "DATA": b"354 go on\r\n",
            "QUIT": b"221 bye\r\n",
            "STARTTLS": b"220 go on\r\n",
        }.get(verb, b"250 ok\r\n")

    def _take(self, lines: Any) -> None:
        taken = b"".join(iter(lines.readline, b".\r\n"))
        letter = message_from_bytes(taken, policy=policy.default)
        assert isinstance(letter, EmailMessage)
        self.letters.append(letter)


@contextlib.contextmanager
def serving(talk: Callable[[socket.socket], None]) -> Iterator[MailServer]:
    with listening(talk) as port:
        yield MailServer("127.0.0.1", port, sender="queue@example.com", timeout=5)


@pytest.fixture
def post() -> Post:
    return Post()


@pytest.fixture
def server(post: Post) -> Iterator[MailServer]:
    with serving(post) as server:
        yield server


def test_a_mail_tells_what_has_failed(post: Post, server: MailServer) -> None:
    send_notification("me@example.com", FAILURE, mail=server)
    (letter,) = post.letters
    assert (letter["To"], letter["From"]) == ("me@example.com", "queue@example.com")
    assert letter["Subject"] == "Job 17 of reports failed: exit code 2"
    assert letter["Auto-Submitted"] == "auto-generated"
    assert letter["Message-ID"].endswith("@example.com>")
    text = letter.get_content()
    for fact in ("17", "reports", "make report", "exit code 2", "3", "2024-05-06T07:08:09+00:00"):
        assert fact in text
    assert "no rule to make target" in text


def receivers(post: Post) -> list[str]:
    """The commands that name a receiver; Pythons differ in their upper and lower case."""
    return [words.lower() for words in post.heard if words.upper().startswith("RCPT")]


def test_only_the_receiver_gets_the_mail(post: Post, server: MailServer) -> None:
    send_notification("me@example.com", FAILURE, mail=server)
    assert receivers(post) == ["rcpt to:<me@example.com>"]


def test_nothing_that_a_job_says_becomes_a_header(post: Post, server: MailServer) -> None:
    failure = replace(FAILURE, job_id=HOSTILE, queue=HOSTILE, command=HOSTILE, reason=HOSTILE)
    send_notification(
        "me@example.com", replace(failure, output_tail=HOSTILE + "\r\n.\r\nQUIT"), mail=server
    )
    (letter,) = post.letters
    assert letter["Bcc"] is None
    assert "\n" not in letter["Subject"]
    assert len(letter["Subject"]) <= notifications.MAX_SUBJECT
    assert letter["Subject"].startswith("Job a Bcc: all@example.com $(touch x)")
    assert letter.get_content().rstrip().endswith("QUIT")
    assert receivers(post) == ["rcpt to:<me@example.com>"]


def test_of_long_output_only_the_end_is_sent(post: Post, server: MailServer) -> None:
    send_notification(
        "me@example.com", replace(FAILURE, output_tail="x" * 9_000 + "end"), mail=server
    )
    text = post.letters[0].get_content()
    assert "x" * 1_997 + "end" in text
    assert "x" * 1_998 not in text


def test_without_a_mail_server_it_is_said_how_to_name_one() -> None:
    assert "queuectl config set smtp_host" in problem_with("me@example.com")


def test_who_sends_mail_proves_who_they_are(post: Post, server: MailServer) -> None:
    send_notification("me@example.com", FAILURE, mail=replace(server, user="me", password="pass"))
    proof = base64.b64encode(b"\0me\0pass").decode()
    assert f"AUTH PLAIN {proof}" in post.heard


@pytest.mark.parametrize(
    ("host", "security", "is_safe"),
    [
        ("mail.example.com", "none", False),
        ("10.0.0.1", "none", False),
        ("127.example.com", "none", False),
        ("mail.example.com", "starttls", True),
        ("mail.example.com", "tls", True),
        ("localhost", "none", True),
        ("127.0.0.2", "none", True),
        ("::1", "none", True),
    ],
)
def test_a_password_is_sent_in_the_clear_only_on_this_machine(
    host: str, security: Security, is_safe: bool
) -> None:
    server = MailServer(host, user="me", password="hidden", security=security)
    assert (server.problem is None) == is_safe
    assert replace(server, user=None, password=None).problem is None


def test_who_would_be_told_a_password_in_the_clear_is_not_called(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(notifications, "_connect", lambda mail: pytest.fail("called"))
    server = MailServer("mail.example.com", user="me", password="hidden")
    message = problem_with("me@example.com", mail=server)
    assert "smtp_security" in message
    assert "hidden" not in message


def test_a_wrong_password_is_not_told(post: Post, server: MailServer) -> None:
    post.refuses["AUTH"] = b"535 not pass word hidden\r\n"
    message = problem_with("me@example.com", mail=replace(server, user="me", password="hidden"))
    assert message == "The mail server 127.0.0.1 refused the user or the password (535)"


def test_a_password_that_cannot_be_sent_is_not_told(server: MailServer) -> None:
    message = problem_with("me@example.com", mail=replace(server, user="me", password="hiddén"))
    assert "é" not in message
    assert "hidd" not in message


def test_a_password_is_not_shown() -> None:
    assert "hidden" not in repr(MailServer("mail", user="me", password="hidden"))


@pytest.mark.parametrize(
    ("verb", "answer", "problem"),
    [
        ("RCPT", b"550 no such\x1b user\r\n", "refused the receiver: 550 no such user"),
        ("MAIL", b"451 later\r\n", "refused the mail: 451 later"),
        ("DATA", b"554 no\r\n", "refused the mail: 554 no"),
        ("END", b"552 too big\r\n", "refused the mail: 552 too big"),
        ("EHLO", b"nonsense\r\n", "refused the mail: -1"),
    ],
)
def test_what_a_mail_server_refuses_is_said(
    verb: str, answer: bytes, problem: str, post: Post, server: MailServer
) -> None:
    post.refuses = {"HELO": b"nonsense\r\n", verb: answer}
    assert problem in problem_with("me@example.com", mail=server)


def test_a_mail_that_was_taken_is_sent_however_the_server_parts(
    post: Post, server: MailServer
) -> None:
    post.refuses["QUIT"] = b"500 stay\r\n"
    send_notification("me@example.com", FAILURE, mail=server)
    assert len(post.letters) == 1


def test_a_mail_server_that_is_not_there_is_said_to_be() -> None:
    with socket.create_server(("127.0.0.1", 0)) as gone:
        port = gone.getsockname()[1]
    message = problem_with("me@example.com", mail=MailServer("127.0.0.1", port))
    assert message == "The mail server 127.0.0.1 could not be reached: Connection refused"


@pytest.mark.parametrize("said", [b"2", b"220-more\r\n"], ids=["a line", "lines"])
def test_a_mail_server_that_drips_is_given_up(said: bytes) -> None:
    def talk(line: socket.socket) -> None:
        while True:
            line.sendall(said)
            time.sleep(0.02)

    began = time.monotonic()
    with serving(talk) as server:
        message = problem_with("me@example.com", mail=replace(server, timeout=0.3))
    assert time.monotonic() - began < 5
    assert "took too long" in message


def test_a_mail_server_that_never_stops_talking_is_given_up() -> None:
    def talk(line: socket.socket) -> None:
        while True:
            line.sendall(b"220-more\r\n" * 1_000)

    with serving(talk) as server:
        assert "broke off" in problem_with("me@example.com", mail=server)


@pytest.mark.parametrize("sender", ["", "nobody", "me@example.com\r\nBcc: all@example.com"])
def test_a_sender_must_be_an_address(sender: str, post: Post, server: MailServer) -> None:
    assert "address" in problem_with("me@example.com", mail=replace(server, sender=sender))
    assert post.letters == []


@pytest.mark.parametrize("security", ["starttls", "tls"])
def test_mail_may_be_encrypted(
    security: Any, certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    post = Post(certificate, at_once=security == "tls")
    with serving(post) as server:
        server = replace(server, host="localhost", security=security, user="me", password="pass")
        send_notification("me@example.com", FAILURE, mail=server)
    assert len(post.letters) == 1


@pytest.mark.parametrize("security", ["starttls", "tls"])
def test_a_mail_server_that_nobody_vouches_for_gets_no_password(
    security: Any, certificate: Path
) -> None:
    post = Post(certificate, at_once=security == "tls")
    with serving(post) as server:
        server = replace(server, host="localhost", security=security, user="me", password="pass")
        assert "not trusted" in problem_with("me@example.com", mail=server)
    assert not [words for words in post.heard if words.startswith("AUTH")]


def test_a_mail_server_that_cannot_encrypt_gets_no_password(post: Post, server: MailServer) -> None:
    server = replace(server, security="starttls", user="me", password="pass")
    assert "STARTTLS" in problem_with("me@example.com", mail=server)
    assert not [words for words in post.heard if words.startswith("AUTH")]


# --- a URL ---------------------------------------------------------------------------------------


class Hook(HTTPServer):
    """Answers what it is told to, and remembers what it was sent."""

    status = 204

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.heard: list[tuple[dict[str, str], bytes]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/?token=hidden"


class Handler(BaseHTTPRequestHandler):
    server: Hook

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.heard.append((dict(self.headers), body))
        self.send_response(self.server.status)
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def hook() -> Iterator[Hook]:
    with Hook() as hook:
        thread = threading.Thread(target=hook.serve_forever, args=(0.01,))
        thread.start()
        yield hook
        hook.shutdown()
        thread.join()


def test_a_url_is_sent_the_facts_and_a_signature(hook: Hook) -> None:
    send_notification(hook.url, FAILURE, mail=None, secret=b"between us", allow_private=True)
    ((headers, body),) = hook.heard
    assert json.loads(body) == {
        "event": "job.failed",
        "job_id": "17",
        "queue": "reports",
        "command": "make report",
        "reason": "exit code 2",
        "attempts": 3,
        "exit_code": 2,
        "failed_at": "2024-05-06T07:08:09+00:00",
        "output_tail": "no rule to make target",
    }
    assert headers["Bullite-Delivery"] == "reports:17:1714979289000"
    assert verify_signature(b"between us", body, headers["Bullite-Signature"])


def test_a_notice_of_another_failure_is_another_delivery(hook: Hook) -> None:
    later = FAILURE.failed_at.replace(minute=30)
    for failure in (FAILURE, FAILURE, replace(FAILURE, failed_at=later)):
        send_notification(hook.url, failure, mail=None, allow_private=True)
    first, again, second = (headers["Bullite-Delivery"] for headers, _ in hook.heard)
    assert first == again != second


def test_whatever_a_job_says_can_be_sent_to_a_url(hook: Hook) -> None:
    failure = replace(FAILURE, job_id=HOSTILE, queue=HOSTILE, reason=HOSTILE, output_tail=HOSTILE)
    send_notification(hook.url, failure, mail=None, allow_private=True)
    assert json.loads(hook.heard[0][1])["reason"] == HOSTILE


def test_a_private_url_is_not_called_unless_allowed(hook: Hook) -> None:
    assert "private address" in problem_with(hook.url)
    assert hook.heard == []


def test_a_url_that_refuses_is_said_to_and_its_secrets_are_not(hook: Hook) -> None:
    hook.status = 500
    assert problem_with(hook.url, allow_private=True, secret=b"x") == "127.0.0.1 answered 500"


# --- a command -----------------------------------------------------------------------------------


def test_a_command_is_given_the_facts_as_variables() -> None:
    send_notification("env > told", FAILURE, mail=None)
    assert {
        "JOB_ID=17",
        "JOB_QUEUE=reports",
        "JOB_REASON=exit code 2",
        "JOB_COMMAND=make report",
        "JOB_ATTEMPTS=3",
        "JOB_EXIT_CODE=2",
    } <= set(Path("told").read_text().splitlines())


def test_a_command_can_read_the_facts_as_json() -> None:
    send_notification("cat > told", FAILURE, mail=None)
    assert json.loads(Path("told").read_text())["output_tail"] == "no rule to make target"


def test_without_an_exit_code_its_variable_is_empty() -> None:
    send_notification('echo "[$JOB_EXIT_CODE]" > told', replace(FAILURE, exit_code=None), mail=None)
    assert Path("told").read_text() == "[]\n"


def test_nothing_that_a_job_says_is_run() -> None:
    failure = Failure(HOSTILE, HOSTILE, HOSTILE, HOSTILE, 1, 1, FAILURE.failed_at, HOSTILE)
    send_notification('printf %s "$JOB_REASON" > told', failure, mail=None)
    assert os.listdir() == ["told"]
    assert Path("told").read_bytes().decode() == HOSTILE.replace("\0", "").replace("\udc80", "?")


def test_very_long_facts_do_not_keep_a_command_from_starting() -> None:
    send_notification("cat > told", replace(FAILURE, command="ü" * 1_000_000), mail=None)
    assert len(json.loads(Path("told").read_text())["command"]) == 1_000_000


@pytest.mark.parametrize(
    ("line", "how"),
    [
        ("exit 3", "ended with exit code 3"),
        ("echo hidden >&2; kill -9 $$", "was ended by signal 9"),
        ("no-such-program --token hidden", "ended with exit code 127"),
    ],
)
def test_a_command_that_fails_is_said_to(line: str, how: str) -> None:
    assert problem_with(line) == f"The command that was to tell {how}"


def test_a_command_that_takes_too_long_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notifications, "COMMAND_TIMEOUT", 0.2)
    assert "took longer than 0.2 s" in problem_with("sleep 60")


def test_a_command_that_takes_too_long_takes_nobody_else_with_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(notifications, "COMMAND_TIMEOUT", 0.4)
    waiting = threading.Thread(target=problem_with, args=("touch begun; sleep 60",))
    waiting.start()
    while not Path("begun").exists():
        time.sleep(0.01)
    with subprocess.Popen(["sleep", "60"], start_new_session=True) as other:
        waiting.join()
        assert other.poll() is None
        other.kill()


def test_a_command_that_cannot_be_started_says_why() -> None:
    assert "could not be started: a null byte in the command" in problem_with("echo a\0b")


def test_who_runs_the_other_commands_may_run_this_one() -> None:
    ran: list[Command] = []

    def run(command: Command) -> CommandResult:
        ran.append(command)
        nothing = HeadTail(b"", b"", 0)
        return CommandResult(EXITED if len(ran) == 1 else SIGNALLED, 0, 9, nothing, nothing)

    send_notification("tell somebody", FAILURE, mail=None, run=run)
    assert (ran[0].line, ran[0].timeout) == ("tell somebody", 30.0)
    assert ran[0].env["JOB_ID"] == "17"
    assert "signal 9" in problem_with("tell somebody", run=run)


def test_the_facts_are_in_no_file_that_a_killed_worker_would_leave_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    send_notification(f"ls -A {folder} > {tmp_path}/meanwhile", FAILURE, mail=None)
    assert (tmp_path / "meanwhile").read_text() == ""
    assert os.listdir(folder) == []
