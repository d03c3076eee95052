#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# ptxas_log.sh NVCC ARGUMENT...: runs nvcc and moves what `-Xptxas -v` prints from its messages into
# the file OBJECT.ptxas, so that a build is quiet and the figures stay. Exit status: nvcc's.
object=
previous=
for argument; do
    [ "$previous" = -o ] && object=$argument
    previous=$argument
done
[ -n "$object" ] || exec "$@"
messages=$object.messages
"$@" 2>"$messages"
status=$?
about='^ptxas info|^ *[0-9]+ bytes stack frame'
grep -E "$about" "$messages" >"$object.ptxas"
grep -vE "$about" "$messages" >&2
rm -f "$messages"
exit $status
