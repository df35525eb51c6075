"""`completion bash|zsh|fish`: scripts that complete verbs, options, queues and jobs.

A shell's script passes the line up to the cursor and reads the reply line by line. The first line
is `names`, followed by the candidates, or `file` or `dir`: then the shell completes paths itself.
"""

from __future__ import annotations

import os
import re
import shlex
from typing import Any

import click
from click.shell_completion import (
    CompletionItem,
    ShellComplete,
    add_completion_class,
    split_arg_string,
)

from ..console import verb
from ..session import Session

PROGRAM = "queuectl"
VARIABLE = "_QUEUECTL_COMPLETE"
LINE = "_QUEUECTL_LINE"
"""The line up to the cursor."""
PIECE = "_QUEUECTL_PIECE"
"""The end of the line that bash replaces: it also breaks words at colons and equals signs."""

_CURSOR = "|"


class Completion(ShellComplete):
    """Completion in the protocol of our scripts."""

    def get_completion_args(self) -> tuple[list[str], str]:
        *words, typed = _words(os.environ[LINE])
        return words[1:], typed

    def complete(self) -> str:
        words, typed = self.get_completion_args()
        found = self.get_completions(words, typed)
        kinds = {item.type for item in found} - {"plain"}
        if kinds:
            return kinds.pop()
        option, equals, _ = typed.partition("=")
        before = option + equals if equals and option.startswith("-") else ""
        return "\n".join(["names", *(self.written(before, item, typed) for item in found)])

    def written(self, before: str, item: CompletionItem[Any], typed: str) -> str:
        """Return a candidate as the shell expects it, after `before`, an option and its =."""
        raise NotImplementedError


def _words(line: str) -> list[str]:
    """Return the words of a line, unquoted; the last is the one being typed."""
    *words, last = split_arg_string(line + _CURSOR)
    return [*words, last.removesuffix(_CURSOR)]


class Bash(Completion):
    """bash expects a candidate as it is typed, without the part that it does not replace."""

    name = "bash"
    source_template = """\
_queuectl_completion() {
    local -a answer
    mapfile -t answer < <(
        _QUEUECTL_COMPLETE=bash_complete \\
            _QUEUECTL_LINE="${COMP_LINE:0:COMP_POINT}" _QUEUECTL_PIECE="$2" "$1" 2>/dev/null
    )
    COMPREPLY=()
    case "${answer[0]}" in
        file) compopt -o default ;;
        dir) compopt -o dirnames ;;
        names) COMPREPLY=("${answer[@]:1}") ;;
    esac
}
complete -o nosort -F _queuectl_completion queuectl
"""

    def written(self, before: str, item: CompletionItem[Any], typed: str) -> str:
        quote = _open_quote(os.environ[LINE])
        piece = _words(quote + os.environ[PIECE])[-1]
        rest = f"{before}{item.value}"[len(typed) - len(piece) :]
        if quote == "'":
            return rest.replace("'", "'\\''")
        if quote:
            return re.sub(r'(["$`\\])', r"\\\1", rest)
        return re.sub(r"([^\w%+,./:=@-])", r"\\\1", rest)


def _open_quote(line: str) -> str:
    """The quote that is open at the end of a line."""
    for quote in ("", "'", '"'):
        try:
            shlex.split(f"{line}{_CURSOR}{quote}")
        except ValueError:
            continue
        return quote
    return ""


class Zsh(Completion):
    """zsh expects a candidate with its description, and quotes it."""

    name = "zsh"
    source_template = """\
#compdef queuectl

_queuectl_completion() {
    local line="${(j: :)words[1,CURRENT-1]} $QIPREFIX$PREFIX"
    local -a answer
    answer=("${(@f)$(_QUEUECTL_COMPLETE=zsh_complete _QUEUECTL_LINE=$line queuectl 2>/dev/null)}")
    [[ $PREFIX == -*=* ]] && compset -P 1 '*='
    case $answer[1] in
        file) _files ;;
        dir) _files -/ ;;
        names) shift answer; _describe -V queuectl answer ;;
    esac
}

if [[ $zsh_eval_context[-1] == loadautofunc ]]; then
    _queuectl_completion "$@"
else
    compdef _queuectl_completion queuectl
fi
"""

    def written(self, before: str, item: CompletionItem[Any], typed: str) -> str:
        name = item.value.replace("\\", "\\\\").replace(":", "\\:")
        return f"{name}:{item.help}" if item.help else name


class Fish(Completion):
    """fish expects the whole word with its description."""

    name = "fish"
    source_template = """\
function _queuectl_completion
    set -l typed (commandline -ct)
    set -l line (commandline -cp | string collect)
    set -l answer (_QUEUECTL_COMPLETE=fish_complete _QUEUECTL_LINE="$line" queuectl 2>/dev/null)
    set -l before (string match -r -- '^-[^=]*=' $typed)
    set -l path (string replace -- "$before" '' $typed)
    switch "$answer[1]"
        case file
            string join \\n -- "$before"(__fish_complete_path $path)
        case dir
            string join \\n -- "$before"(__fish_complete_directories $path)
        case names
            string join \\n -- $answer[2..]
    end
end

complete --no-files --command queuectl --arguments '(_queuectl_completion)'
"""

    def written(self, before: str, item: CompletionItem[Any], typed: str) -> str:
        name = before + item.value
        return f"{name}\t{item.help}" if item.help else name


SHELLS = {kind.name: add_completion_class(kind) for kind in (Bash, Zsh, Fish)}


@click.command()
@click.argument("shell", type=click.Choice(list(SHELLS)))
@verb
def completion(session: Session, shell: str) -> None:
    """Print the script that completes names in a shell.

    For bash: eval "$(queuectl completion bash)" in ~/.bashrc.
    """
    from ..program import queuectl

    script = SHELLS[shell](queuectl, {}, PROGRAM, VARIABLE).source()
    session.console.done(script.rstrip("\n"), {"shell": shell, "script": script})
