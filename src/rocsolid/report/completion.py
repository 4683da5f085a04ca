"""Completion scripts for bash, zsh and fish."""

from collections.abc import Sequence
from dataclasses import dataclass

Option = tuple[str, str, tuple[str, ...], bool]  # name, summary, choices, whether it takes a value


@dataclass(frozen=True, kw_only=True)
class CommandSpec:
    """One command, its options and its positional words."""

    name: str
    summary: str
    options: tuple[Option, ...]
    words: tuple[str, ...]  # the possible positional arguments; empty when those are files


def completion_script(shell: str, commands: Sequence[CommandSpec]) -> str:
    """The script for bash, zsh or fish."""
    return {"bash": _bash, "zsh": _zsh, "fish": _fish}[shell](commands)


def _bash(commands: Sequence[CommandSpec]) -> str:
    names = " ".join(command.name for command in commands)
    cases = "\n".join(_bash_case(command) for command in commands)
    return f"""\
# bash completion for rocsolid; written by `rocsolid completion bash`
_rocsolid() {{
    local word=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD-1]}} command="" options="" words="" at
    COMPREPLY=()
    for ((at = 1; at < COMP_CWORD; at++)); do
        [[ ${{COMP_WORDS[at]}} != -* ]] && command=${{COMP_WORDS[at]}} && break
    done
    if [[ -z $command ]]; then
        COMPREPLY=($(compgen -W "--help --version {names}" -- "$word"))
        return
    fi
    case $command in
{cases}
    esac
    if [[ $word == -* ]]; then
        COMPREPLY=($(compgen -W "$options" -- "$word"))
    elif [[ -n $words ]]; then
        COMPREPLY=($(compgen -W "$words" -- "$word"))
    fi
}}
complete -o default -F _rocsolid rocsolid
"""


def _bash_case(command: CommandSpec) -> str:
    lines = [f"    {command.name})", f'        options="{" ".join(name for name, *_ in command.options)}"']
    if command.words:
        lines.append(f'        words="{" ".join(command.words)}"')
    lines.append("        case $before in")
    for name, _, values, takes in command.options:
        if values:
            lines.append(f'        {name}) COMPREPLY=($(compgen -W "{" ".join(values)}" -- "$word")); return;;')
        elif takes:
            lines.append(f"        {name}) return;;")  # a file or free text: the shell's default completion
    return "\n".join([*lines, "        esac;;"])


def _zsh(commands: Sequence[CommandSpec]) -> str:
    listed = "\n".join(f"    {_quoted(f'{command.name}:{_plain(command.summary)}')}" for command in commands)
    cases = "\n".join(f"  {command.name}) _arguments {_zsh_arguments(command)};;" for command in commands)
    return f"""\
#compdef rocsolid
# zsh completion for rocsolid; written by `rocsolid completion zsh`
_rocsolid() {{
  local -a commands
  commands=(
{listed}
  )
  if (( CURRENT == 2 )); then
    _describe command commands
    return
  fi
  local command=$words[2]
  shift words
  (( CURRENT-- ))
  case $command in
{cases}
  esac
}}
if [[ $zsh_eval_context[-1] == loadautofunc ]]; then _rocsolid "$@"; else compdef _rocsolid rocsolid; fi
"""


def _zsh_arguments(command: CommandSpec) -> str:
    parts = []
    for name, summary, values, takes in command.options:
        value = f":value:({' '.join(values)})" if values else ":value:_files" if takes else ""
        parts.append(_quoted(f"*{name}[{_plain(summary)}]{value}"))
    parts.append(_quoted(f"*:name:({' '.join(command.words)})" if command.words else "*:file:_files"))
    return " ".join(parts)


def _fish(commands: Sequence[CommandSpec]) -> str:
    lines = ["# fish completion for rocsolid; written by `rocsolid completion fish`"]
    first = "__fish_use_subcommand"
    lines += [f"complete -c rocsolid -f -n {first} -a {c.name} -d {_quoted(_plain(c.summary))}" for c in commands]
    for command in commands:
        here = f"complete -c rocsolid -n '__fish_seen_subcommand_from {command.name}'"
        for name, summary, values, takes in command.options:
            written = f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}"
            value = f" -x -a {_quoted(' '.join(values))}" if values else " -r" if takes else ""
            lines.append(f"{here} {written}{value} -d {_quoted(_plain(summary))}")
        if command.words:
            lines.append(f"{here} -f -a {_quoted(' '.join(command.words))}")
    return "\n".join(lines) + "\n"


def _plain(text: str) -> str:
    """The summary without characters that are special in shells."""
    for sign, other in (("[", "("), ("]", ")"), (":", ","), ("`", ""), ("%(", "("), ("$", ""), ("\\", "")):
        text = text.replace(sign, other)
    return text


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"
