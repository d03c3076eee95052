# SPDX-License-Identifier: Apache-2.0
# Options of the scripts here, for sourcing. The script has a function usage.

usage_error() {
    echo "${0##*/}: $*; try --help" >&2
    exit 2
}

# read_options "NAME..." ARGUMENT...: --NAME VALUE sets the variable NAME; NAME+ takes no value and
# becomes yes, NAME# must be a number from 1 on. Other arguments go into the array words.
read_options() {
    local names=" ${1//[[:space:]]/ } " name
    shift
    words=()
    while [ $# -gt 0 ]; do
        name=${1#--}
        case $1 in
        -h | --help) usage && exit 0 ;;
        --?*)
            if [[ $names = *" $name+ "* ]]; then
                printf -v "${name//-/_}" yes
            elif [[ $names = *" $name "* || $names = *" $name# "* ]]; then
                [ $# -gt 1 ] || usage_error "$1 needs a value"
                [[ $names != *" $name# "* || $2 =~ ^[1-9][0-9]*$ ]] ||
                    usage_error "$1 '$2': expected a number from 1 on"
                printf -v "${name//-/_}" %s "$2"
                shift
            else
                usage_error "unknown option '$1'"
            fi
            ;;
        -?*) usage_error "unknown option '$1'" ;;
        *) words+=("$1") ;;
        esac
        shift
    done
}

# no_words: the script takes options alone.
no_words() { [ ${#words[@]} = 0 ] || usage_error "unknown argument '${words[0]}'"; }

# Goes to a scratch folder, removed at the end of the script.
scratch_folder() {
    scratch=$(mktemp -d "${TMPDIR:-/tmp}/chex-test.XXXXXX") && cd "$scratch" || exit 1
    trap 'rm -rf "$scratch"' EXIT
}
fail() {
    echo "${0##*/}: $*" >&2
    exit 1
}
