#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# --freeze and --layer-decay: which parameters move, resumed runs, and bad patterns.
# shellcheck source=tests/cmd/lib.sh
. "$(dirname "$0")/lib.sh"

phantom_set 40
new=(--data set --model densenet_tiny --image-size 32 --batch-size 4 --deterministic --logical-ranks 2
    --epochs 1 --opt adamw --lr 1e-3 --weight-decay 0.1 --precision fp32 --engine cpu --threads 1)
# changed RUN RUN PARAMETER: whether the parameter differs.
changed() { ! h5diff "$1/last.h5" "$2/last.h5" "/params/$3" "/params/$3" >/dev/null; }
first=features.conv0.weight middle=features.denseblock3.denselayer1.conv1.weight last=classifier.weight

expect_status 0 chex-train "${new[@]}" --output whole
expect_status 0 chex-train "${new[@]}" --output start --max-steps 1 --lr 0
expect_status 0 chex-train "${new[@]}" --output run --freeze 'features.conv0.*,features.denseblock[1-4]*'
like "$(err)" 'frozen: 49 of 64 parameter tensors \([0-9.]* % of the values\)' "the log counts frozen parameters"
! changed start run $first && ! changed start run $middle
ok $? "frozen parameters keep their values, with weight decay too"
changed start run $last && changed start run features.transition1.conv.weight &&
    changed start run features.norm0.running_mean
ok $? "the others and the running statistics move"
expect_status 0 chex-train "${new[@]}" --output part --max-steps 2 --freeze 'features.conv0.*,features.denseblock[1-4]*'
expect_status 0 chex-train --data set --output part --engine cpu --threads 2 --max-steps 0
like "$(err)" "taken from part/.*freeze 'features.conv0" "a resumed run keeps the patterns"
h5diff run/last.h5 part/last.h5 /params /params >/dev/null
ok $? "it has the bits of one that did not stop"

expect_status 0 chex-train --data set --output part --engine cpu --epochs 2 --max-steps 0 --freeze none --plan
like "$(err)" "freeze 'features.conv0[^ ]*' -> 'none'" "--freeze none trains all parameters again"

expect_status 0 chex-train "${new[@]}" --output one --layer-decay 1
h5diff whole/last.h5 one/last.h5 /params/$first /params/$first >/dev/null
ok $? "--layer-decay 1 changes no bit"
expect_status 0 chex-train "${new[@]}" --output decay --layer-decay 0.1
like "$(err)" 'layer decay: the rate of the first trained layer is 1e-09 of --lr' "the log states the smallest rate"
changed start whole $first && h5diff -d 1e-8 start/last.h5 decay/last.h5 /params/$first /params/$first >/dev/null &&
    changed start decay $last
ok $? "the first layer hardly moves, and the classifier does"

refused() { # REGEX OPTION...
    expect_status 2 chex-train "${new[@]}" --output bad "${@:2}"
    error_line "$1" "its error names the option and what is expected"
}
refused "--freeze: 'feature\.\*' matches no trained parameter of densenet_tiny \(expected names such as features.conv0.weight" --freeze 'feature.*'
refused "--freeze: '' matches no trained parameter" --freeze 'classifier.*,'
refused '--freeze \*: no parameter is left to train' --freeze '*'
refused '--layer-decay' --layer-decay 0
refused '--layer-decay' --layer-decay 1.5
[ ! -e bad ]
ok $? "bad patterns and factors are refused before anything is written"
done_testing
