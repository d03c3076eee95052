#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# --decay-norms and --nesterov: what they change, what is refused, and what resumed runs keep.
# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$(dirname "$0")/lib.sh"

phantom_set 40
here=(--data set --engine cpu --threads 1)
new=("${here[@]}" --model densenet_tiny --image-size 32 --batch-size 4 --deterministic --opt sgd --lr 1e-3)
same() { h5diff "$1" "$2" "/params/$3" "/params/$3" >/dev/null; } # FILE FILE PARAMETER
norm=features.norm0.weight conv=features.conv0.weight

# One step from equal parameters: gradients are equal, only the decay differs.
expect_status 0 chex-train "${new[@]}" --max-steps 1 --output none
expect_status 0 chex-train "${new[@]}" --max-steps 1 --output weights --weight-decay 0.1
expect_status 0 chex-train "${new[@]}" --max-steps 1 --output all --weight-decay 0.1 --decay-norms
same none/last.h5 weights/last.h5 $norm && ! same none/last.h5 weights/last.h5 $conv
ok $? "weight decay applies to convolutions and not to batch norms"
! same weights/last.h5 all/last.h5 $norm && same weights/last.h5 all/last.h5 $conv
ok $? "--decay-norms applies it to batch norms too"

expect_status 0 chex-train "${new[@]}" --max-steps 3 --output plain
expect_status 0 chex-train "${new[@]}" --max-steps 3 --output nesterov --nesterov
like "$(err)" "sgd with Nesterov's momentum, lr 0.001" "the log names Nesterov's momentum"
! same plain/last.h5 nesterov/last.h5 $conv
ok $? "Nesterov's momentum changes the parameters"
expect_status 0 chex-train "${new[@]}" --max-steps 2 --output again --nesterov
expect_status 0 chex-train "${here[@]}" --max-steps 3 --output again --momentum 0.9
like "$(err)" "nesterov 'yes'" "a resumed run keeps Nesterov's momentum"
unlike "$(err)" "has no effect" "--momentum has an effect with the resumed run's --opt sgd"
h5diff again/last.h5 nesterov/last.h5 /params /params >/dev/null
ok $? "a resumed run has the bits of one that did not stop"
for opt in adam adamw lars; do
    expect_status 2 chex-train "${new[@]}" --opt $opt --nesterov --output bad
    error_line "--nesterov: --opt is $opt \(expected sgd\)" "Nesterov's momentum is refused with $opt"
done
expect_status 2 chex-train "${here[@]}" --image-size 32 --nesterov --output bad
error_line '--nesterov: --opt is adam \(expected sgd\)' "it is refused with the default optimiser"
expect_status 2 chex-train "${new[@]}" --nesterov --momentum 0 --output bad
error_line '--nesterov: --momentum is 0 \(expected more than 0\)' "it is refused without momentum"
[ ! -e bad ]
ok $? "a refused run writes nothing"

done_testing
