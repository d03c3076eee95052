#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# --hflip is an option of the run: default, switched off, resumed.
# shellcheck source=tests/cmd/lib.sh
. "$(dirname "$0")/lib.sh"

phantom_set 24 --shards 1
train=(chex-train --data set --engine cpu --threads 1)
new=(--model densenet_tiny --image-size 32 --batch-size 2 --deterministic)
same() { h5diff "$1/last.h5" "$2/last.h5" /params /params >/dev/null; } # RUN RUN

expect_status 0 "${train[@]}" "${new[@]}" --max-steps 4 --output half
like "$(err)" '--hflip 0.5 is the default: .* heart' "the default is explained in one line"
cp -r half resumed
expect_status 0 "${train[@]}" --max-steps 5 --output resumed
unlike "$(err)" 'is the default' "a run that goes on does not explain it again"
expect_status 0 "${train[@]}" "${new[@]}" --max-steps 4 --hflip 0.5 --output asked
unlike "$(err)" 'is the default' "a probability that was given is not explained"
same half asked
ok $? "the default is 0.5"
expect_status 0 "${train[@]}" "${new[@]}" --max-steps 4 --hflip 0 --output none
unlike "$(err)" 'flip' "without flips the log does not name them"
! same half none
ok $? "without flips the parameters differ"
like "$(cat none/config.json)" '"hflip": "0"' "config.json has the probability"
expect_status 0 "${train[@]}" "${new[@]}" --max-steps 2 --hflip 0 --output again
expect_status 0 "${train[@]}" --max-steps 4 --output again
like "$(err)" "taken from again/.*hflip '0'" "a resumed run takes the probability over"
same none again
ok $? "a resumed run has the bits of one that did not stop"
for p in -0.1 1.01 x nan; do
    expect_status 2 "${train[@]}" --output bad --hflip "$p"
done
[ ! -e bad ]
ok $? "a probability outside 0 to 1 is refused before anything is written"
done_testing
