# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
#
# Bash completion for chex-shard, chex-train, chex-eval and chex-env. Options, values and
# subcommands are read from each command's own --help, so there is no second list of them.
#
# As a program, `bash chex.bash COMMAND WORD... CURRENT`, it prints what completes the last word, one a
# line, folders with a slash. The completions of zsh and fish call it.

# The help of a command with every option. Wrapped lines begin at column 35 and are joined.
_chex_help() {
    "$@" --help all 2>/dev/null | sed ':more;N;$!b more;s/\n \{35\}/ /g'
}

# Option lines of the help: "      --name METAVAR   text (a, b, c) [default]".
_chex_options() {
    sed -n 's/^  \(-., \|    \)\(--[a-z0-9-]*\).*/\2/p' <<<"$1"
}

_chex_subcommands() {
    sed -n '/^Subcommands$/,/^$/s/^  \([a-z-]*\) .*/\1/p' <<<"$1"
}

# The help's line for option $2, which may be a letter.
_chex_line() {
    case $2 in
    --*) sed -n "/^  \(-., \|    \)$2 /p" <<<"$1" ;;
    *) sed -n "/^  $2, /p" <<<"$1" ;;
    esac
}

# The values that line $1 with metavar $2 names: those in the brackets at its end, or the words of a
# metavar such as auto|none|FILE.
_chex_choices() {
    local part parts=()
    sed -n 's/ (required)$//
        s/.*(\([a-z0-9-]*\(, [a-z0-9-]*\)*\))\( \[[^]]*\]\)\{0,1\}$/\1/p' <<<"$1" | tr -d ','
    [[ $2 != *"|"* ]] || IFS='|' read -ra parts <<<"$2"
    for part in "${parts[@]}"; do
        [[ $part == @(FILE|DIR|PATH|TIME) ]] || echo "$part"
    done
}

# The values of option $2 that begin with $3, into COMPREPLY; false where it takes none.
_chex_complete_value() {
    local line metavar
    line=$(_chex_line "$1" "$2")
    metavar=$(sed -n 's/^  ....--[a-z0-9-]* \([^ ][^ ]*\) .*/\1/p' <<<"$line")
    [ -n "$metavar" ] || return
    mapfile -t COMPREPLY < <(compgen -W "$(_chex_choices "$line" "$metavar")" -- "$3")
    if [[ $metavar =~ (FILE|DIR|PATH) ]]; then
        mapfile -t -O ${#COMPREPLY[@]} COMPREPLY < <(compgen -f -- "$3")
    fi
}

_chex() {
    local command=$1 current=$2 previous=$3 help subcommand='' word words='' option=''
    COMPREPLY=()
    help=$(_chex_help "$command")
    for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
        if grep -qxF -- "$word" <<<"$(_chex_subcommands "$help")"; then
            subcommand=$word
            help=$(_chex_help "$command" "$subcommand")
            break
        fi
    done
    # --option=value is three words, unless = was taken out of COMP_WORDBREAKS.
    if [[ $current == --*=* ]]; then
        option=${current%%=*}
        _chex_complete_value "$help" "$option" "${current#*=}" || return
        COMPREPLY=("${COMPREPLY[@]/#/$option=}")
        return
    elif [ "$current" = = ]; then
        option=$previous current=''
    elif [ "$previous" = = ]; then
        option=${COMP_WORDS[COMP_CWORD - 2]}
    elif [[ $previous == -* ]]; then
        option=$previous
    fi
    if [[ $option =~ ^--?[a-z0-9-]+$ ]] && _chex_complete_value "$help" "$option" "$current"; then
        return
    fi
    words=$(_chex_options "$help")
    [ -n "$subcommand" ] || words="$words $(_chex_subcommands "$help")"
    mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current")
    if [ ${#COMPREPLY[@]} = 0 ]; then
        mapfile -t COMPREPLY < <(compgen -f -- "$current")
    fi
}

if [ "${BASH_SOURCE[0]}" != "$0" ]; then
    complete -o filenames -F _chex chex-shard chex-train chex-eval chex-env
elif [ $# -gt 1 ]; then
    COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
    _chex "$1" "${!#}" "${COMP_WORDS[COMP_CWORD - 1]}"
    for word in "${COMPREPLY[@]}"; do
        if [ -d "${word#--*=}" ]; then word=${word%/}/; fi
        printf '%s\n' "$word"
    done
fi
