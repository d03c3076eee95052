#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# --head-only: what trains, what the files hold, resumed runs and several processes, and options
# that have no meaning with it. The arithmetic: tests/op/head.c.
# shellcheck source=tests/cmd/lib.sh
. "$(dirname "$0")/lib.sh"

phantom_set 60
common=(--data set --model densenet_tiny --image-size 32 --precision fp32 --engine cpu --threads 1)
new=("${common[@]}" --batch-size 4 --deterministic --logical-ranks 4 --lr 1e-2 --head-only)
chex-train "${common[@]}" --batch-size 8 --max-steps 1 --output start -q 2>start.err
from=(--init start/last.h5)
# same RUN RUN OBJECT: whether the object is equal in the last checkpoints.
same() { h5diff "$1/last.h5" "$2/last.h5" "$3" "$3" >/dev/null; }
# all_same RUN RUN: parameters, moments and moving average.
all_same() { same "$1" "$2" /params && same "$1" "$2" /moment1 && same "$1" "$2" /moment2 && same "$1" "$2" /ema; }

average=(--epochs 1 --ema 0.8 --clip-norm 0.5 --pos-weight balanced --label-smoothing 0.1)
expect_status 0 chex-train "${new[@]}" "${average[@]}" "${from[@]}" --output run
like "$(err)" '--head-only: only the classifier trains \(1806 parameters, fp32 on the host\), on 128 features of each image: running statistics, no augmentation; rank 0 keeps those of 48 images \(24.0 KiB\)' \
    "the log says what trains and on what"
unlike "$(err)" 'augmentation: crops|--hflip' "it lists no augmentation"
! same start run /params/classifier.weight && ! same start run /params/classifier.bias
ok $? "the classifier moves"
is "$(h5diff start/last.h5 run/last.h5 /params /params | grep ^dataset | grep -o '</[^>]*>' | sort -u | tr -d '\n')" \
    '</params/classifier.bias></params/classifier.weight>' "nothing else does"

# The head is what trains on: the validation of the run is that of chex-eval on the images.
expect_status 0 chex-eval "${common[@]:0:2}" --checkpoint run/last.h5 --split val --output eval --engine cpu \
    --threads 1 --precision fp32 --bootstrap 0
near "$(sed -nE 's/^  "mean": ([^,]*).*/\1/p' eval/auroc.json)" \
    "$(grep '"kind":"epoch"' run/metrics.jsonl | tail -n 1 | sed -nE 's/.*"val_auroc_mean":([^,]*).*/\1/p')" 1e-6 \
    "chex-eval has the AUROC of the run's last validation"

# Two processes begin, if mpirun is here, and one goes on.
mpi_ranks 2 || ranks=()
expect_status 0 "${ranks[@]}" chex-train "${new[@]}" "${average[@]}" "${from[@]}" --output part --max-steps 1
expect_status 0 chex-train --data set --output part --engine cpu --threads 2 --max-steps 0
like "$(err)" "taken from part/.*head-only 'yes'" "a resumed run keeps the option, without --init"
all_same run part
ok $? "it has the bits of one process that did not stop"
expect_status 0 chex-train --prove run --data set
like "$(out)" '^run: 1 of 1 repeated stretches are equal' "a proof repeats the run"

if mpi_ranks 4; then
    expect_status 0 "${ranks[@]}" chex-train "${new[@]}" "${average[@]}" "${from[@]}" --output four
    all_same run four
    ok $? "four processes have the bits of one"
else
    skip "no mpirun here" 2
fi

refused() { # REGEX OPTION...
    expect_status 2 chex-train "${new[@]}" --output bad "${@:2}"
    error_line "$1" "its error names the option and what is expected"
}
refused '--head-only: the network has only the parameters of --seed, and its features mean nothing \(expected --init FILE with a trained network\)'
refused '--head-only and --hflip: only the classifier trains, on features that are computed once' "${from[@]}" --hflip 0
refused '--head-only and --freeze: ' "${from[@]}" --freeze 'features.*'
refused '--head-only and --sync-bn: ' "${from[@]}" --sync-bn
refused '--head-only and --audit-steps: ' "${from[@]}" --audit-steps 2
refused '--head-only and --pipeline old: it reads images in every epoch' "${from[@]}" --pipeline old
[ ! -e bad ]
ok $? "they are refused before anything is written"
expect_status 2 chex-train "${common[@]}" --output start --head-only --epochs 2
error_line 'start/checkpoints/.*: the run was made without --head-only; start another one from it with --init, in another --output' \
    "a run of the whole network does not go on as one of its classifier"
expect_status 2 chex-train "${common[@]}" --output run --no-head-only --epochs 9
error_line 'run/checkpoints/.*: the run was made with --head-only; start another one' "nor the other way round"
done_testing
