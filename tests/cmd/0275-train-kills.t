#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# chex-train is killed 10 times at random moments. tests/soak_kills.sh does it more often.
# shellcheck source=tests/cmd/lib.sh
. "$(dirname "$0")/lib.sh"

expect_status 0 env CHEX_TEST_BUILD="$BUILD" bash "$SOURCE/tests/soak_kills.sh" \
    --kills 10 --steps 30 --ranks 1 --opt sgd --model densenet_tiny
like "$(out)" '^soak: 10 kills in .* no difference$' "after 10 kills each run has the bits of an undisturbed one"
done_testing
