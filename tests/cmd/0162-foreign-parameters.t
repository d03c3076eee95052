# SPDX-License-Identifier: Apache-2.0
# Parameter files of other programs are recognised by their content, whatever their names.
source "$(dirname "$0")/lib.sh"

chex-shard phantom --count 24 --size 32 --output ph --quiet || exit 1
chex-shard --images ph/images --labels ph/labels.csv --split patient --size 32 --shards 1 \
    --output shards --quiet 2>/dev/null || exit 1
printf 'PK\003\004some archive' >model.pth
printf '\200\002\212\012l\374\234F\371 j\250P' >old.pt
cp model.pth named.safetensors
cp old.pt named.h5
train=(chex-train --data shards --image-size 32 --engine cpu --max-steps 1 --batch-size 2 --output run)

for file in model.pth old.pt named.safetensors; do
    expect_status 3 "${train[@]}" --init "$file"
    error_line "$file: a PyTorch file, expected safetensors; convert it in Python: import torch, safetensors.torch as s; .*s.save_file\(.*\)" "--init $file"
done
for file in model.pth old.pt named.safetensors named.h5; do
    expect_status 3 chex-eval --data shards --image-size 32 --engine cpu --output e --checkpoint "$file"
    error_line "$file: a PyTorch file, expected safetensors" "--checkpoint $file"
done
printf '\211HDF\r\n\032\nrest' >last.h5
expect_status 3 "${train[@]}" --init last.h5
error_line "last.h5: an HDF5 file, expected safetensors; convert a checkpoint with 'chex-eval export --checkpoint" "--init of a checkpoint"

# A safetensors file whose header's length begins like a pickle.
{
    printf '\200\002\000\000\000\000\000\000'
    printf '{%*s}' 638 ''
} >like.safetensors
expect_status 3 "${train[@]}" --init like.safetensors
unlike "$(err)" PyTorch "a header of 640 bytes is no pickle"
done_testing
