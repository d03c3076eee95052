# SPDX-License-Identifier: Apache-2.0
# Parameter files are recognised by their content, whatever their names.
source "$(dirname "$0")/lib.sh"

chex-shard phantom --count 24 --size 32 --output ph --quiet || exit 1
chex-shard --images ph/images --labels ph/labels.csv --split patient --size 32 --shards 1 \
    --output shards --quiet 2>/dev/null || exit 1
printf 'PK\003\004some archive' >model.pth
printf '\200\002\212\012l\374\234F\371 j\250P' >old.pt
cp model.pth named.safetensors
cp old.pt named.h5
printf '\211HDF\r\n\032\nrest' >last.h5
cp last.h5 last.pth
printf 'no parameters' >text.h5
cp text.h5 text.pth
train=(chex-train --data shards --image-size 32 --engine cpu --max-steps 1 --batch-size 2 --output run)

while IFS='|' read -r file text; do
    expect_status 3 "${train[@]}" --init "$file"
    error_line "$file: $text" "--init $file"
    expect_status 3 chex-eval --data shards --image-size 32 --engine cpu --output e --checkpoint "$file"
    error_line "$file: $text" "--checkpoint $file"
done <<'END'
model.pth|damaged zip archive: no end record
named.safetensors|damaged zip archive: no end record
old.pt|pickle, byte 4: truncated
named.h5|pickle, byte 4: truncated
last.h5|no checksum record at its end
last.pth|no checksum record at its end
text.h5|.*HDF5
text.pth|not a safetensors file
END
expect_status 3 "${train[@]}" --resume model.pth
error_line "model.pth: a PyTorch file, expected a checkpoint of chex-train \(to start from its parameters: chex-train --init FILE\)" \
    "--resume of a PyTorch file"

# A safetensors file whose header's length begins like a pickle.
{
    printf '\200\002\000\000\000\000\000\000'
    printf '{%*s}' 638 ''
} >like.safetensors
expect_status 3 "${train[@]}" --init like.safetensors
unlike "$(err)" pickle "a header of 640 bytes is no pickle"
done_testing
