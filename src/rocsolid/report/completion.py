"""Completion scripts for bash, zsh and fish."""

from collections.abc import Sequence
from dataclasses import dataclass

Option = tuple[str, str, tuple[str, ...], bool]  # name, summary, choices, whether it takes a value


@dataclass(frozen=True, kw_only=True)
class CommandSpec:
    """One command, its options, and the possible values of its positional arguments."""

    name: str
    summary: str
    options: tuple[Option, ...]
    arguments: tuple[str, ...]  # the possible values of its positional arguments; empty if these are files


def completion_script(shell: str, commands: Sequence[CommandSpec]) -> str:
    """The script for bash, zsh or fish."""
    return {"bash": _bash, "zsh": _zsh, "fish": _fish}[shell](commands)


def _bash(commands: Sequence[CommandSpec]) -> str:
    names = " ".join(command.name for command in commands)
    cases = "\n".join(_bash_case(command) for command in commands)
    return f"""\
# bash completion for rocsolid; written by `rocsolid completion bash`
_rocsolid() {{
    local word=${{COMP_WORDS[COMP_CWORD]}} previous=${{COMP_WORDS[COMP_CWORD-1]}} command="" options="" arguments="" i
    COMPREPLY=()
    for ((i = 1; i < COMP_CWORD; i++)); do
        [[ ${{COMP_WORDS[i]}} != -* ]] && command=${{COMP_WORDS[i]}} && break
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
    elif [[ -n $arguments ]]; then
        COMPREPLY=($(compgen -W "$arguments" -- "$word"))
    fi
}}
complete -o default -F _rocsolid rocsolid
"""


def _bash_case(command: CommandSpec) -> str:
    lines = [f"    {command.name})", f'        options="{" ".join(name for name, *_ in command.options)}"']
    if command.arguments:
        lines.append(f'        arguments="{" ".join(command.arguments)}"')
    lines.append("        case $previous in")
    for name, _, values, takes_value in command.options:
        if values:
            lines.append(f'        {name}) COMPREPLY=($(compgen -W "{" ".join(values)}" -- "$word")); return;;')
        elif takes_value:
            lines.append(f"        {name}) return;;")  # a file or free text: the shell's default completion
    return "\n".join([*lines, "        esac;;"])


def _zsh(commands: Sequence[CommandSpec]) -> str:
    command_lines = "\n".join(
        f"    {_quoted(f'{command.name}:{_without_special_characters(command.summary)}')}" for command in commands
    )
    cases = "\n".join(f"  {command.name}) _arguments {_zsh_arguments(command)};;" for command in commands)
    return f"""\
#compdef rocsolid
# zsh completion for rocsolid; written by `rocsolid completion zsh`
_rocsolid() {{
  local -a commands
  commands=(
{command_lines}
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
    for name, summary, values, takes_value in command.options:
        value = f":value:({' '.join(values)})" if values else ":value:_files" if takes_value else ""
        parts.append(_quoted(f"*{name}[{_without_special_characters(summary)}]{value}"))
    parts.append(_quoted(f"*:name:({' '.join(command.arguments)})" if command.arguments else "*:file:_files"))
    return " ".join(parts)


def _fish(commands: Sequence[CommandSpec]) -> str:
    lines = ["# fish completion for rocsolid; written by `rocsolid completion fish`"]
    no_command_yet = "__fish_use_subcommand"
    lines += [
        f"complete -c rocsolid -f -n {no_command_yet} -a {c.name} -d {_quoted(_without_special_characters(c.summary))}"
        for c in commands
    ]
    for command in commands:
        prefix = f"complete -c rocsolid -n '__fish_seen_subcommand_from {command.name}'"
        for name, summary, values, takes_value in command.options:
            option = f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}"
            value = f" -x -a {_quoted(' '.join(values))}" if values else " -r" if takes_value else ""
            lines.append(f"{prefix} {option}{value} -d {_quoted(_without_special_characters(summary))}")
        if command.arguments:
            lines.append(f"{prefix} -f -a {_quoted(' '.join(command.arguments))}")
    return "\n".join(lines) + "\n"


def _without_special_characters(text: str) -> str:
    """The summary without characters that are special in shells."""
    for character, replacement in (("[", "("), ("]", ")"), (":", ","), ("`", ""), ("%(", "("), ("$", ""), ("\\", "")):
        text = text.replace(character, replacement)
    return text


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"
