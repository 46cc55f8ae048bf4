"""`aiosctl completion SHELL`, and the `aiosctl __complete` that the scripts call at each Tab.

`__complete WORD… INCOMPLETE` prints one candidate a line: kind, a tab, the word, a tab, a short text. Kind `plain` is a
candidate; `file` and `dir` ask the shell for its own file names. Verbs and options come from the click tree; ids and
capabilities from `candidates.py`. The D-Bus library is not imported.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from aiosd.cli import options
from aiosd.cli.terminal import one_line

if TYPE_CHECKING:
    from aiosd.cli.session import Session

_BASH = """\
# bash completion of aiosctl(1); made by 'aiosctl completion bash'
_aiosctl() {
    local kind word text
    COMPREPLY=()
    while IFS=$'\\t' read -r kind word text; do
        case $kind in
            plain) COMPREPLY+=("$word") ;;
            dir) compopt -o dirnames 2>/dev/null ;;
            file) compopt -o default 2>/dev/null ;;
        esac
    done < <(aiosctl __complete "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
}
complete -o nosort -F _aiosctl aiosctl
"""

_ZSH = """\
#compdef aiosctl
# zsh completion of aiosctl(1); made by 'aiosctl completion zsh'
_aiosctl() {
    local kind word text
    local -a found files
    while IFS=$'\\t' read -r kind word text; do
        case $kind in
            plain) found+=("${word//:/\\\\:}${text:+:$text}") ;;
            dir) files=(-/) ;;
            file) files=(-g '*') ;;
        esac
    done < <(aiosctl __complete "${(@)words[2,CURRENT]}" 2>/dev/null)
    local ret=1
    (( $#found )) && _describe -V aiosctl found && ret=0
    (( $#files )) && _files $files && ret=0
    return ret
}
if [[ $funcstack[1] == _aiosctl ]]; then
    _aiosctl "$@"
else
    compdef _aiosctl aiosctl
fi
"""

_FISH = """\
# fish completion of aiosctl(1); made by 'aiosctl completion fish'
function __fish_aiosctl
    set -l words (commandline -opc) (commandline -ct)
    for line in (aiosctl __complete $words[2..-1] 2>/dev/null)
        set -l fields (string split -m 2 \\t -- $line)
        switch $fields[1]
            case plain
                printf '%s\\t%s\\n' $fields[2] $fields[3]
            case dir
                __fish_complete_directories $fields[2]
            case file
                __fish_complete_path $fields[2]
        end
    end
end
complete -c aiosctl -f -k -a '(__fish_aiosctl)'
"""

SCRIPTS = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH}
"""The script of each shell; packaging/completions holds them as files."""


@click.command
@click.argument("shell", type=click.Choice(list(SCRIPTS)))
@options.common
@options.pass_session
def command(session: Session, *, shell: str) -> None:
    """Print the completion script of a shell; packages install it, so this is for other places.

    For bash: eval "$(aiosctl completion bash)".
    """
    if session.json:
        session.emit({"shell": shell, "script": SCRIPTS[shell]})
    else:
        session.out.write(SCRIPTS[shell])


def complete(root: click.Command, words: list[str]) -> int:
    """Print the candidates for the last of `words`, after the others."""
    from click.shell_completion import ShellComplete

    *before, incomplete = words or [""]
    for item in ShellComplete(root, {}, "aiosctl", "_AIOSCTL_COMPLETE").get_completions(before, incomplete):
        sys.stdout.write(f"{item.type}\t{item.value}\t{one_line(item.help or '')}\n")
    return 0
