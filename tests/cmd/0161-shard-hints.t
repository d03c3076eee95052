# SPDX-License-Identifier: Apache-2.0
# Errors of chex-shard name the remedy.
source "$(dirname "$0")/lib.sh"

chex-shard phantom --count 12 --size 32 --output ph --quiet || exit 1
mapfile -t images < <(ls ph/images)
# refuse STATUS REGEX OPTION...
refuse() {
    local status=$1 text=$2
    shift 2
    expect_status "$status" chex-shard --output o --size 32 --quiet "$@"
    error_line "$text" "says: $text"
}
good=(--images ph/images --labels ph/labels.csv)

refuse 2 "--images ph/labels.csv is a file and --labels ph/images is a folder: are the two swapped" --images ph/labels.csv --labels ph/images
refuse 2 "--labels ph/images: a folder, expected a label file" --images ph/images --labels ph/images
refuse 2 "--images ph/labels.csv: a file, expected a folder of images or an archive" --images ph/labels.csv --labels ph/labels.csv

refuse 3 "labels.csv: no image has a view that --views keeps; the views are (PA|AP) \\([0-9]+\\)" "${good[@]}" --split patient --views lateral
refuse 2 "--views 'PX': 'PX', expected some of PA, AP, lateral" "${good[@]}" --views PX
refuse 2 "--fractions .2,3.: expected three numbers" "${good[@]}" --fractions 2,3
refuse 2 "--fractions: 2, expected 0 to 1" "${good[@]}" --fractions 2,0,0
expect_status 2 chex-shard import-tfrecord ph/labels.csv --label-order x --output o
error_line "--label-order 'x': 'x', expected dell, chexnet" "--label-order is named"

# Own images and the official split.
refuse 3 "no ph/train_val_list.txt beside the label file; .* or split at random by patient with --split patient" "${good[@]}"
echo 00011558_003.png >ph/train_val_list.txt
echo 00011558_004.png >ph/test_list.txt
refuse 3 "none of its 1 image .* is in ph/labels.csv; to split your own images at random by patient, use --split patient" "${good[@]}"

# Findings with another separator.
{
    echo "image,findings"
    for i in {0..11}; do echo "${images[$i]},Mass;Edema"; done
} >own.csv
refuse 3 "'Mass;Edema', expected 'No Finding' or .* with '\\|' between" --images ph/images --labels own.csv --split patient
[ ! -e o ]
ok $? "nothing is written"
done_testing
