# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
#
# Bash completion for chex-shard, chex-train, chex-eval and chex-env. Options, values and
# subcommands are read from each command's own --help, so there is no second list of them.

# Option lines of the help: "      --name METAVAR   text (a, b, c) [default]".
_chex_options() {
    sed -n 's/^  \(-., \|    \)\(--[a-z0-9-]*\).*/\2/p' <<<"$1"
}

_chex_subcommands() {
    sed -n '/^Subcommands$/,/^$/s/^  \([a-z-]*\) .*/\1/p' <<<"$1"
}

# Values of option $2: those in the brackets at the end of its line, where it has such.
_chex_choices() {
    sed -n "s/^ .*$2 [A-Z].*(\\([a-z0-9-]*\\(, [a-z0-9-]*\\)*\\))\\( \\[[^]]*\\]\\)\\{0,1\\}\$/\\1/p" <<<"$1" |
        tr -d ','
}

_chex() {
    local command=$1 current=$2 previous=$3 help subcommand='' word words=''
    COMPREPLY=()
    help=$("$command" --help 2>/dev/null) || return
    for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
        if grep -qxF -- "$word" <<<"$(_chex_subcommands "$help")"; then
            subcommand=$word
            help=$("$command" "$subcommand" --help 2>/dev/null) || return
            break
        fi
    done
    if [[ $previous == --* ]]; then
        words=$(_chex_choices "$help" "$previous")
        if [ -z "$words" ] && grep -qE -- " $previous [A-Z]" <<<"$help"; then
            mapfile -t COMPREPLY < <(compgen -f -- "$current")
            return
        fi
    fi
    if [ -z "$words" ]; then
        words=$(_chex_options "$help")
        [ -n "$subcommand" ] || words="$words $(_chex_subcommands "$help")"
    fi
    mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current")
    if [ ${#COMPREPLY[@]} = 0 ]; then
        mapfile -t COMPREPLY < <(compgen -f -- "$current")
    fi
}
complete -o filenames -F _chex chex-shard chex-train chex-eval chex-env
