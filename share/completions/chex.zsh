#compdef chex-shard chex-train chex-eval chex-env
# SPDX-License-Identifier: Apache-2.0
#
# zsh completion, installed as _chex. The file of bash completes the words: see there.
local file=${functions_source[_chex]:A:h:h:h}/bash-completion/completions/chex-env
local -a found
found=("${(@f)$(bash $file "${(@Q)words[1,CURRENT-1]}" "${(Q)PREFIX}" 2>/dev/null)}")
found=("${(@)found:#}")
# A folder goes on without a space.
compadd -S '' -- ${(M)found:#*/}
compadd -- ${found:#*/}
(( $#found ))
