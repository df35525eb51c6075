"""What a command says, on its way into the database."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bullite.commands import output
from bullite.commands.capture import HeadTail, HeadTailBuffer
from bullite.commands.output import (
    MAX_LINE_LENGTH,
    OutputChunker,
    Redactor,
    StoredStream,
    as_bytes,
    redacted,
)
from bullite.operations.command_output import OutputChunk

NOTHING = Redactor()
SECRETS = Redactor([r"password=\S+", "hunter2"])


class Shelf:
    """Keeps what is to be written and drops what is to go, as the database does."""

    def __init__(self, pieces: OutputChunker) -> None:
        self.pieces = pieces
        self.kept: dict[int, OutputChunk] = {}

    def hear(self, data: bytes, stream: str = "stdout") -> None:
        self.pieces.add(stream, data)

    def write(self) -> list[int]:
        """Take what there is; the numbers of what was new."""
        new, drop = self.pieces.take()
        self.kept |= {piece.number: piece for piece in new}
        if drop is not None:
            first, last = drop
            for number in range(first, last + 1):
                del self.kept[number]
        return [piece.number for piece in new]

    def say(self, data: bytes, stream: str = "stdout") -> None:
        self.hear(data, stream)
        self.write()

    def text(self, stream: str = "stdout") -> bytes:
        pieces = [piece for _, piece in sorted(self.kept.items()) if piece.stream == stream]
        return b"".join(as_bytes(piece.data) for piece in pieces)


def shelf(most_kept: int = 100, redactor: Redactor = NOTHING) -> Shelf:
    return Shelf(OutputChunker(most_kept, redactor))


# --- pieces --------------------------------------------------------------------------------------


def test_pieces_are_numbered_in_the_order_in_which_they_came() -> None:
    said = shelf()
    said.hear(b"one")
    assert said.write() == [1]
    said.hear(b"two")
    said.hear(b"oops", "stderr")
    said.hear(b"three")
    assert said.write() == [2, 3, 4]
    assert [piece.stream for piece in said.kept.values()] == ["stdout"] * 2 + ["stderr", "stdout"]


def test_what_one_stream_says_in_a_row_is_one_piece() -> None:
    said = shelf()
    said.hear(b"one ")
    said.hear(b"two")
    assert said.write() == [1]
    assert said.text() == b"one two"


def test_nothing_is_written_when_nothing_was_said() -> None:
    said = shelf()
    assert said.pieces.take() == ([], None)
    said.hear(b"")
    assert said.pieces.take() == ([], None)


def test_any_bytes_come_back_as_they_were() -> None:
    said = shelf(1_000)
    said.say(bytes(range(256)))
    assert said.text() == bytes(range(256))


def test_all_is_kept_up_to_the_limit_of_both_halves() -> None:
    said = shelf(10)
    for _ in range(4):
        said.say(b"12345")
    assert said.text() == b"12345" * 4


def test_the_first_pieces_and_the_last_are_kept_and_the_middle_goes() -> None:
    said = shelf(10)
    for number in range(100):
        said.say(b"%05d" % number)
    assert said.text() == b"00000000010009800099"


def test_no_number_is_used_again_for_what_was_dropped() -> None:
    said = shelf(10)
    for number in range(50):
        said.hear(b"%05d" % number)
        assert said.write() == [number + 1]


def test_pieces_of_both_streams_share_the_room() -> None:
    said = shelf(10)
    for _ in range(20):
        said.say(b"12345")
        said.say(b"abcde", "stderr")
    assert (said.text(), said.text("stderr")) == (b"12345" * 2, b"abcde" * 2)


def test_a_piece_that_is_larger_than_the_room_goes_with_the_next() -> None:
    said = shelf(10)
    said.say(b"x" * 30)
    assert said.text() == b"x" * 30
    said.say(b"end")
    assert said.text() == b"end"


def test_of_a_flood_between_two_writings_the_beginning_and_the_end_are_held() -> None:
    said = shelf(100)
    said.hear(b"begin")
    for _ in range(1_000):
        said.hear(b"x" * 1_000)
    said.hear(b"end")
    [(_, held)] = said.pieces._waiting
    assert len(held) <= 400
    said.write()
    assert said.text().startswith(b"begin")
    assert said.text().endswith(b"end")


@pytest.mark.parametrize("most", range(20, 60))
def test_no_half_of_a_secret_is_held_of_a_flood(most: int) -> None:
    said = shelf(most, SECRETS)
    said.hear(b"first\n" + b"password=tellnobody\n" * 100 + b"last\n")
    said.write()
    shown = said.text().replace(b"[redacted]", b"")
    assert set(shown.split()) <= {b"first", b"last"}


@pytest.mark.parametrize("most", [0, 1])
def test_next_to_no_room_holds_next_to_nothing(most: int) -> None:
    said = shelf(most)
    for _ in range(100):
        said.hear(b"x" * 100)
        said.say(b"y")
    assert len(said.text()) <= 4


# --- what is taken out ---------------------------------------------------------------------------


def test_what_matches_is_taken_out_wherever_it_is() -> None:
    assert SECRETS.clean(b"a hunter2 b password=x\nhunter2") == (
        b"a [redacted] b [redacted]\n[redacted]"
    )


def test_without_patterns_nothing_is_taken_out() -> None:
    assert not NOTHING
    assert NOTHING.clean(b"hunter2 \xff") == b"hunter2 \xff"


def test_patterns_are_about_characters_not_bytes() -> None:
    assert Redactor(["[éü]"]).clean("é ö ü".encode()) == "[redacted] ö [redacted]".encode()
    assert Redactor([r"\u20ac\d+", "(?u)zażółć"]).clean("€12".encode()) == b"[redacted]"


def test_what_is_no_utf_8_is_left_as_it_is() -> None:
    assert SECRETS.clean(b"\xff\xfe hunter2 \x80") == b"\xff\xfe [redacted] \x80"


def test_a_pattern_that_matches_nothing_at_all_takes_nothing_out() -> None:
    assert Redactor(["x*"]).clean(b"axxb") == b"a[redacted]b"


def test_a_secret_that_comes_in_two_pieces_is_taken_out() -> None:
    said = shelf(redactor=SECRETS)
    said.say(b"user=me pass")
    said.say(b"word=hun")
    said.say(b"ter\nnext\n")
    assert said.text() == b"user=me [redacted]\nnext\n"


def test_a_line_is_held_back_until_it_ends_only_while_something_is_taken_out() -> None:
    said, plain = shelf(redactor=SECRETS), shelf()
    for one in (said, plain):
        one.say(b"whole\nhalf")
    assert said.text() == b"whole\n"
    assert plain.text() == b"whole\nhalf"


def test_lines_of_two_streams_are_held_back_apart() -> None:
    said = shelf(redactor=SECRETS)
    said.say(b"hun")
    said.say(b"ter2\n", "stderr")
    said.say(b"ger\n")
    assert said.text() == b"hunger\n"
    assert said.text("stderr") == b"ter2\n"


def test_of_a_very_long_line_most_is_shown_before_it_ends() -> None:
    said = shelf(10 * MAX_LINE_LENGTH, SECRETS)
    said.say(b"x" * 2 * MAX_LINE_LENGTH)
    assert MAX_LINE_LENGTH <= len(said.text()) < 2 * MAX_LINE_LENGTH
    said.say(b"\n")
    assert said.text() == b"x" * 2 * MAX_LINE_LENGTH + b"\n"


@pytest.mark.parametrize("at", range(1, len(b"hunter2")))
def test_a_secret_in_a_very_long_line_is_not_shown_in_two_halves(at: int) -> None:
    said = shelf(10 * MAX_LINE_LENGTH, SECRETS)
    said.say(b"x" * (MAX_LINE_LENGTH + 10) + b"hunter2"[:at])
    said.say(b"hunter2"[at:] + b"x" * MAX_LINE_LENGTH)
    said.say(b"\n")
    assert b"hunter2" not in said.text()
    assert said.text().count(b"[redacted]") == 1


# --- what is kept in the end ---------------------------------------------------------------------


def captured(data: bytes, most: int) -> HeadTail:
    capture = HeadTailBuffer(most)
    capture.add(data)
    return capture.captured()


def test_what_is_stored_comes_back() -> None:
    stored = StoredStream.of(captured(bytes(range(256)) * 10, 100), NOTHING)
    assert StoredStream.decoded(*stored.encoded()) == stored
    assert stored == (bytes(range(50)), bytes(range(206, 256)), 2_460)


def test_nothing_stored_comes_back_as_nothing() -> None:
    assert StoredStream.decoded(None, None, 0) == (b"", b"", 0)


def test_where_something_was_left_out_it_is_said() -> None:
    assert StoredStream(b"begin", b"end", 0).whole() == b"beginend"
    assert StoredStream(b"begin", b"end", 7).whole() == b"begin\n[... 7 bytes left out ...]\nend"


@pytest.mark.parametrize("shift", range(8))
def test_a_secret_between_head_and_tail_is_taken_out(shift: int) -> None:
    data = b"x" * (46 + shift) + b"hunter2"
    stored = StoredStream.of(captured(data, 100), SECRETS)
    assert stored.whole() == b"x" * (46 + shift) + b"[redacted]"


def test_no_half_of_a_secret_is_kept_beside_what_was_left_out() -> None:
    lines = b"first\n" + b"password=tellnobody\n" * 100 + b"last\n"
    for most in range(20, 80):
        stored = StoredStream.of(captured(lines, most), SECRETS)
        assert not any(part in stored.whole() for part in (b"tell", b"nobody", b"passw", b"body"))
        assert stored.dropped > 0
        kept = stored.head.replace(b"[redacted]", b"password=tellnobody")
        rest = stored.tail.replace(b"[redacted]", b"password=tellnobody")
        assert len(kept) + len(rest) + stored.dropped == len(lines)


def test_without_patterns_the_cut_is_where_the_room_ends() -> None:
    assert StoredStream.of(captured(b"one two three", 6), NOTHING) == (b"one", b"ree", 7)


def test_of_very_long_lines_the_ends_beside_the_gap_are_left_out() -> None:
    stored = StoredStream.of(captured(b"x" * 100 * MAX_LINE_LENGTH, 20 * MAX_LINE_LENGTH), SECRETS)
    assert (len(stored.head), len(stored.tail)) == (9 * MAX_LINE_LENGTH, 9 * MAX_LINE_LENGTH)
    assert stored.dropped == 82 * MAX_LINE_LENGTH


@pytest.mark.parametrize(
    "at", [10 * MAX_LINE_LENGTH - MAX_LINE_LENGTH, 90 * MAX_LINE_LENGTH + MAX_LINE_LENGTH]
)
def test_no_half_of_a_secret_is_kept_where_the_end_of_a_very_long_line_is_left_out(at: int) -> None:
    line = bytearray(b"x" * 100 * MAX_LINE_LENGTH)
    line[at - 3 : at + 4] = b"hunter2"
    stored = StoredStream.of(captured(bytes(line), 20 * MAX_LINE_LENGTH), SECRETS)
    assert set((stored.head + stored.tail).replace(b"[redacted]", b"")) <= set(b"x[redacted]")


def test_more_is_held_back_than_a_secret_is_long() -> None:
    assert output.MAX_SECRET_LENGTH < MAX_LINE_LENGTH


# --- patterns that take long ---------------------------------------------------------------------


def test_redaction_lets_other_threads_run() -> None:
    """Processor time that passes between two turns of another thread is bounded."""
    address = Redactor([r"[\w.+-]+@[\w.-]+"])
    cleaning = threading.Thread(target=address.clean, args=(b"a" * 50_000,), daemon=True)
    longest, before = 0.0, time.process_time()
    cleaning.start()
    while cleaning.is_alive():
        cleaning.join(0.001)
        now = time.process_time()
        longest, before = max(longest, now - before), now
    assert longest < 2.5


class Looked:
    """A pattern that notes which parts of a text it was asked about."""

    def __init__(self, pattern: str) -> None:
        self.pattern = re.compile(pattern)
        self.parts: list[tuple[int, int]] = []

    def finditer(self, text: str, begin: int, end: int) -> Iterator[re.Match[str]]:
        self.parts.append((begin, end))
        return self.pattern.finditer(text, begin, end)


def test_redaction_searches_no_more_than_a_line_at_once() -> None:
    looked = Looked("x")
    assert redacted(looked, "a" * 20 * MAX_LINE_LENGTH) == "a" * 20 * MAX_LINE_LENGTH
    assert max(end - begin for begin, end in looked.parts) <= MAX_LINE_LENGTH
    assert len(looked.parts) <= 50


def test_redaction_gives_up_on_a_text_that_takes_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output, "SECONDS", 0.0)
    monkeypatch.setattr(output, "SECONDS_PER_CHARACTER", 0.0)
    clean = Redactor(["hunter2"]).clean(b"hunter2 " + b"a" * 10 * MAX_LINE_LENGTH + b"hunter2")
    assert clean.startswith(b"[redacted] aaa")
    assert clean.endswith(b"aaa[redacted: the patterns took too long]")
    assert len(clean) < 2 * MAX_LINE_LENGTH


@pytest.mark.parametrize("at", [-9, -5, -1, 0, 1])
@pytest.mark.parametrize("border", [MAX_LINE_LENGTH, MAX_LINE_LENGTH // 2, 3 * MAX_LINE_LENGTH])
@pytest.mark.parametrize("letter", [b"x", b"xyz\n", b"x " * 90 + b"\n"])
def test_a_secret_on_the_border_of_two_searches_is_redacted(
    at: int, border: int, letter: bytes
) -> None:
    text = bytearray((letter * 8 * MAX_LINE_LENGTH)[: 8 * MAX_LINE_LENGTH])
    text[border + at : border + at + 7] = b"hunter2"
    assert b"[redacted]" in SECRETS.clean(bytes(text))
    assert b"hunter2" not in SECRETS.clean(bytes(text))


def test_what_follows_a_secret_on_the_border_of_two_searches_is_kept() -> None:
    said = b"x" * (MAX_LINE_LENGTH - 12) + b" password=abcdef kept"
    assert SECRETS.clean(said) == b"x" * (MAX_LINE_LENGTH - 12) + b" [redacted] kept"


@pytest.mark.parametrize("before", [0, 100, 5_000, 8_000, 9_000])
def test_a_secret_of_a_whole_line_is_redacted_whole(before: int) -> None:
    line = b"password=" + b"p" * (MAX_LINE_LENGTH - 9)
    said = b"y" * before + b"\n" + line + b"\nnext " + line + b"\nlast"
    clean = Redactor([r"password=\S+"]).clean(said)
    assert clean == b"y" * before + b"\n[redacted]\nnext [redacted]\nlast"


def test_a_key_of_several_lines_is_redacted_whole() -> None:
    key = b"BEGIN KEY\n" + (b"k" * 64 + b"\n") * 50 + b"END KEY"
    noise = (b"noise " * 12 + b"\n") * 100
    clean = Redactor([r"(?s)BEGIN KEY.*?END KEY"]).clean((noise + key) * 20 + b"z")
    assert clean == (noise + b"[redacted]") * 20 + b"z"


@pytest.mark.parametrize("rest", [b"\nnext\n", b"", b" more\nnext\n"])
def test_a_secret_longer_than_a_search_is_redacted_to_the_end_of_its_line(rest: bytes) -> None:
    said = b"a password=" + b"p" * 5 * MAX_LINE_LENGTH + rest
    clean = Redactor([r"password=\S+"]).clean(said)
    assert clean == b"a [redacted]" + rest[rest.find(b"\n") if rest else 0 :]


def test_a_secret_of_many_lines_longer_than_a_search_is_redacted_to_the_end() -> None:
    said = b"a BEGIN " + b"secret\n" * 5_000
    assert Redactor(["(?s)BEGIN.*"]).clean(said) == b"a [redacted]"


@given(
    st.sampled_from(["b+", "^a", "a$", "(?m)^ab", "(?m)b$", r"(?<=a)b", "b?", r"\bab\b", "a b"]),
    st.lists(st.sampled_from(["a", "b", "ab ", "a b", "\n", "a" * 50, "b" * 30]), max_size=60),
)
def test_redaction_in_parts_takes_out_what_one_search_does(pattern: str, words: list[str]) -> None:
    text = "".join(words)
    once = re.compile(pattern)
    assert _is_within(redacted(once, text, 16).replace("[redacted]", ""), once.sub("", text))
    assert redacted(once, text) == once.sub(lambda m: "[redacted]" if m[0] else "", text)


def _is_within(part: str, whole: str) -> bool:
    """Whether the characters of one text are those of the other, in order, with some left out."""
    letters = iter(whole)
    return all(letter in letters for letter in part)
