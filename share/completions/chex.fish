# SPDX-License-Identifier: Apache-2.0
#
# fish completion, installed once for each command. The file of bash completes the words: see there.
set -g __chex_bash (status dirname)/../../bash-completion/completions/chex-env
function __chex_complete
    bash $__chex_bash (commandline -opc) (commandline -ct) 2>/dev/null
end
complete -c (status basename | string replace .fish '') -f -a '(__chex_complete)'
