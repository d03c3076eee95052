#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Help, manual page and completion of each command name the same options, the pages have their
# sections and agree with the format pages, and the files that README and CONTRIBUTING name exist.
source "$(dirname "$0")/lib.sh"
# shellcheck source=../../share/completions/chex.bash
source "$SOURCE/share/completions/chex.bash"

# All option names of a command and of its subcommands.
help_options() {
    local help sub
    help=$(_chex_help "$1")
    {
        _chex_options "$help"
        for sub in $(_chex_subcommands "$help"); do
            _chex_options "$(_chex_help "$1" "$sub")"
        done
    } | sort -u
}

# Choices that the item of their option in a manual page does not have. stdin: the text of a help.
choices_missing() { # PAGE
    awk '
        function put() {
            if (match(text, /\([a-z0-9-]+(, [a-z0-9-]+)+\)/)) print name, substr(text, RSTART + 1, RLENGTH - 2)
            text = ""
        }
        /^  (    |-., )--[a-z]/ { put(); name = $0; sub(/^.*  ?--/, "", name); sub(/[ =].*/, "", name) }
        { sub(/^ +/, ""); text = text " " $0 }
        /^$/ { put() }
        END { put() }' | sort -u | while read -r name list; do
        item=$(awk -v name="$name" '/^\.It Fl/ { gsub(/\\/, ""); on = ($0 " ") ~ (" -" name " ") } on' "$1")
        for value in ${list//,/}; do [[ $item == *$value* ]] || echo "--$name: $value"; done
    done
}

man_options() {
    sed -n 's/^\.It \(Fl . , \)\{0,1\}Fl \\-\([a-z0-9-]*\).*/--\2/p' "$1" | sort -u
}

# What TAB offers after the given words.
completed() {
    local COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)) COMPREPLY
    _chex "$1" "${!#}" "${COMP_WORDS[$# - 2]}"
    printf '%s\n' "${COMPREPLY[@]}"
}

found=0
for command in chex-shard chex-train chex-eval chex-env; do
    have "$command" || { skip "$command is not built" 9; continue; }
    found=1
    page=$SOURCE/share/man/$command.1
    [ -f "$page" ]
    ok $? "$command has a manual page" || continue
    is "$(diff <(help_options "$command") <(man_options "$page"))" "" \
        "$command: help and manual page name the same options"
    top=$(_chex_options "$(_chex_help "$command")" | sort -u)
    is "$(completed "$command" -- | sort -u)" "$top" "$command: so does the completion"
    {
        "$command" --help all
        for sub in $(_chex_subcommands "$("$command" --help)"); do "$command" "$sub" --help all; done
    } | choices_missing "$page" >missing
    is "$(cat missing)" "" "$command: the manual page has all choices of each option"
    for section in NAME SYNOPSIS DESCRIPTION OPTIONS ENVIRONMENT FILES "EXIT STATUS" EXAMPLES; do
        # EXAMPLES is near the top, where mdoc allows only a subsection.
        grep -qxi ".S[hs] $section" "$page" || echo "no $section"
    done >sections
    is "$(cat sections)" "" "$command: the page has its sections"
    is "$(sed -n '/^.Sh EXIT STATUS/,/^.El/s/^\.It //p' "$page" | tr '\n' ' ')" "0 1 2 3 4 5 6 7 8 9 " \
        "$command: every exit status is explained"
    ! "$command" --help all | sed '/^Subcommands/,$d' | grep -nE '^.{101}'
    ok $? "$command: no line of the help has more than 100 columns"
    [ "$(_chex_options "$("$command" --help)" | wc -l)" -le 35 ]
    ok $? "$command: --help lists at most 35 options"
    for sub in $(_chex_subcommands "$("$command" --help)"); do
        grep -qE "^\.(Cm|It Cm|Op Cm) $sub" "$page" || echo "$sub"
    done >subcommands
    is "$(cat subcommands)" "" "$command: and every subcommand"
done
[ $found = 1 ] || skip_all "no command is built"

if have chex-env; then
    is "$(completed chex-env --mode '' | tr '\n' ' ')" "job prolog login health " "completion of a choice"
    is "$(completed chex-env --le)" "--level" "completion of a name"
    is "$(completed chex-env --level '' | tr '\n' ' ')" "1 2 3 " "completion of a number's values"
    is "$(completed chex-env --timeout '')" "" "a duration has no completion"
    is "$(completed chex-env --mode =)" "$(completed chex-env --mode '')" "values after ="
    is "$(completed chex-env --mode = pro)" "prolog" "a value is completed from its first letters"
    is "$(completed chex-env --mode=pro)" "--mode=prolog" "the completion works where = splits no words"
    mkdir -p folder
    is "$(completed chex-env --expect = fol)" "folder" "a path after ="
fi
! have chex-train || unlike "$(chex-train --help all)" densenet_tiny "help does not list the network of tests"
if have chex-shard; then
    like "$(completed chex-shard ver)" "^verify$" "completion of a subcommand"
    unlike "$(completed chex-shard phantom --)" "^--labels$" "a subcommand has its own options"
    mkdir -p folder
    is "$(completed chex-shard --images fol)" "folder" "completion of a path"
    unlike "$(completed chex-shard --images '')" "^required$" "a path option completes paths only"
fi
if have chex-train; then
    like "$(chex-train --help)" "more options for special cases: chex-train --help all" \
        "the short help names the long one"
    unlike "$(chex-train --help)" "--asl-clip" "the short help leaves special options out"
    mkdir -p folder
    like "$(completed chex-train --resume '' | tr '\n' ' ')" "^auto none .*folder" \
        "completion of words and files"
    is "$(completed chex-train --engine c | tr '\n' ' ')" "cuda cpu " "completion of an engine"
    is "$(completed chex-train -d fol)" "folder" "completion after a letter"
    is "$(completed chex-train -m densenet12)" "densenet121" "a choice after a letter is completed"
    like "$(completed chex-train --deterministic --epo)" "^--epochs$" "a flag takes no value"
fi

# The completions of zsh and fish as installed, in the shells themselves. What a TAB makes of each line:
cat >lines <<'END'
chex-env --mo
chex-env --mode pro
chex-env --mode=pro
chex-shard ver
chex-shard --images fol
chex-train -m densenet12
END
wanted="chex-env --mode
chex-env --mode prolog
chex-env --mode=prolog
chex-shard verify
chex-shard --images folder/
chex-train -m densenet121"
mkdir -p folder prefix
cmake --install "$BUILD" --component chexnet --prefix "$SCRATCH/prefix" >install 2>&1
if have zsh && [ -d prefix/share/zsh/site-functions ]; then
    cat >.zshrc <<END
PS1='ready>' LISTMAX=1000
fpath=($SCRATCH/prefix/share/zsh/site-functions \$fpath)
autoload -Uz compinit && compinit -u -D
record() { print -r -- "\${BUFFER% }" >>$SCRATCH/zsh-lines; BUFFER=; }
zle -N record
bindkey '^T' record
END
    cat >type.zsh <<'END'
zmodload zsh/zpty
zpty z zsh -i
zpty -r z seen '*ready>*'
while read -r line; do zpty -wn z "$line"$'\t\x14'; done <lines
zpty -w z exit
while zpty -r z seen; do :; done
END
    ZDOTDIR=$SCRATCH TERM=dumb timeout 60 zsh -f type.zsh >zsh-out 2>&1
    is "$(cat zsh-lines)" "$wanted" "zsh: TAB completes options, values, subcommands and paths"
else
    skip "no zsh here, or installed elsewhere"
fi
if have fish; then
    while read -r line; do
        echo "${line% *} $(HOME=$SCRATCH XDG_DATA_DIRS=$SCRATCH/prefix/share:/usr/share fish -c "complete -C'$line'")"
    done <lines >fish-lines 2>&1
    is "$(cat fish-lines)" "$wanted" "fish: TAB completes options, values, subcommands and paths"
else
    skip "no fish here"
fi

# Sections 5 and 7 repeat what is defined elsewhere.
listed() { # PAGE HEADING: the items of the list below the heading
    awk -v h="$2" '/^\.S[hs] / { on = $0 ~ "^.S[hs] " h "$" } on && sub(/^\.It /, "")' "$1"
}
table() { # DOCUMENT HEADING: the first cells of the tables below the heading
    awk -v h="$2" '/^#/ { on = $0 ~ "^#+ " h "$" } on' "$1" | sed -n 's/^| `\([a-z0-9_/]*\)`.*/\1/p'
}
man=$SOURCE/share/man doc=$SOURCE/doc
is "$(listed "$man/chexnet.7" "EXIT STATUS" | tr '\n' ' ')" "0 1 2 3 4 5 6 7 8 9 " \
    "chexnet(7) explains every exit status"
is "$(listed "$man/chexnet-shard.5" "Attributes of a shard")" \
    "$(table "$doc/shard-format.md" "Attributes of the root group")" "chexnet-shard(5) has every attribute"
is "$(listed "$man/chexnet-shard.5" "Datasets of a shard")" \
    "$(table "$doc/shard-format.md" "Datasets")" "chexnet-shard(5) has every dataset"
is "$(listed "$man/chexnet-checkpoint.5" "Attributes")" \
    "$(table "$doc/checkpoint-format.md" "Attributes of the root group")" \
    "chexnet-checkpoint(5) has every attribute"
is "$(listed "$man/chexnet-checkpoint.5" "Groups")" \
    "$(table "$doc/checkpoint-format.md" "Groups and datasets")" "chexnet-checkpoint(5) has every group"
sed -n 's/^\.Xr \(chex[a-z-]*\) \([0-9]\).*/\1.\2/p' "$man"/* | sort -u | while read -r page; do
    [ -f "$man/$page" ] || echo "$page"
done >missing
is "$(cat missing)" "" "pages refer to pages that exist"
for page in "$man"/*.1; do grep -q '^\.Xr chexnet 7' "$page" || echo "$page"; done >missing
is "$(cat missing)" "" "the page of each command refers to chexnet(7)"
is "$(cd "$SCRATCH/prefix/share/man" 2>/dev/null && find . -type f | sort | tr '\n' ' ')" \
    "$(cd "$man" && for page in *.[1-8]; do echo "./man${page##*.}/$page"; done | sort | tr '\n' ' ')" \
    "every page is installed in its section"
if have mandoc; then
    mandoc -Tlint -W warning,stop "$SOURCE"/share/man/*.[1-8] >lint 2>&1
    ok $? "mandoc has no complaint" || diag "$(cat lint)"
else
    skip "no mandoc here"
fi

for file in README.md CONTRIBUTING.md; do
    grep -oE '`[a-z.][A-Za-z0-9_.-]*/[A-Za-z0-9_./-]*`' "$SOURCE/$file" | tr -d '`' | sort -u |
        while read -r path; do
            case $path in
            build/* | run/* | shards/* | */X* | */NNNN* | *_NAME.*) ;;
            *) [ -e "$SOURCE/$path" ] || echo "$path" ;;
            esac
        done >missing
    is "$(cat missing)" "" "$file names only files that exist"
done
for file in "$SOURCE"/*.md "$SOURCE"/doc/*.md "$SOURCE"/doc/*/*.md "$SOURCE"/tests/*.md "$SOURCE"/tests/gpu/*.md; do
    grep -oE '\]\([^)#]+' "$file" | cut -c3- | grep -v '^http' | sort -u |
        while read -r path; do
            [ -e "$(dirname "$file")/$path" ] || echo "$path"
        done >missing
    is "$(cat missing)" "" "the links of ${file#"$SOURCE/"} lead to files"
done
# The pages of doc/add, without their diffs: paths between ` that have a folder.
sed '/^```/,/^```/d' "$SOURCE"/doc/add/*.md |
    grep -oE '`(libcore|cmd|cmake|share|tests|doc)/[A-Za-z0-9_./-]*`' | tr -d '`' | sort -u |
    while read -r path; do
        case $path in
        *NAME* | *ISA*) ;;
        *) [ -e "$SOURCE/$path" ] || echo "$path" ;;
        esac
    done >missing
is "$(cat missing)" "" "doc/add: the files in which things are added exist"
done_testing
