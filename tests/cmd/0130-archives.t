# SPDX-License-Identifier: Apache-2.0
# chex-shard makes the same bytes from images in .tar and .tar.gz as from loose files, resumes a
# killed run, and names faulty archives.
source "$(dirname "$0")/lib.sh"
need tar gzip

chex-shard phantom --count 300 --size 96 --output ph --quiet || exit 1
mkdir tars packed both spare
ls ph/images >names
split -n l/3 -d names part-
for i in 0 1 2; do
    tar -C ph/images -cf tars/images_$i.tar --transform 's|^|images/|' -T "part-0$i"
    gzip -nc tars/images_$i.tar >packed/images_$i.tar.gz
done
if ! chex-shard --version | grep -q libarchive; then
    expect_status 4 chex-shard --images tars --labels ph/labels.csv --output o --split none
    error_line "images_0.tar: this chexnet was built without libarchive" "without libarchive archives are refused"
    expect_status 0 chex-shard --images ph/images --labels ph/labels.csv --output o --split none --quiet
    done_testing
fi
run=(chex-shard --labels ph/labels.csv --split patient --size 48 --shards 4)
"${run[@]}" --images ph/images --output whole --quiet || exit 1

expect_status 0 "${run[@]}" --images tars --output a
like "$(err)" "images in archives: 3 plain, 0 compressed" "plain archives are counted in the log"
diff -r whole a
ok $? ".tar: the bytes of the unpacked images"
for workers in 1 3; do
    expect_status 0 "${run[@]}" --images packed --output g$workers --workers $workers
    diff -r whole g$workers
    ok $? ".tar.gz, $workers workers: the bytes of the unpacked images"
done
like "$(err)" "images in archives: 0 plain, 3 compressed" "compressed archives are counted in the log"
is "$(ls -A g1 | paste -sd' ')" "manifest.json rejected.csv test train val" "no spool remains"

# All three kinds at once, other names, several gzip members in one file, padding after them.
xargs -a part-00 -I{} cp ph/images/{} both
cp tars/images_1.tar both/IMAGES.TAR
{
    head -c 20000 tars/images_2.tar | gzip -n
    tail -c +20001 tars/images_2.tar | gzip -n
    head -c 1000 /dev/zero
} >both/images_2.tgz
expect_status 0 "${run[@]}" --images both --output b
diff -r whole b
ok $? "files, .TAR and .tgz side by side"
cp packed/images_0.tar.gz both
expect_status 0 "${run[@]}" --images both --output b2
diff -r whole b2
ok $? "a file of its own goes before one in an archive"
cp -r ph/images spare
cp packed/images_0.tar.gz spare
expect_status 0 "${run[@]}" --images spare --output s
like "$(err)" "1 archives under spare are not needed" "archives beside whole folders are not read"
head -n 101 ph/labels.csv >first.csv
expect_status 0 "${run[@]}" --labels first.csv --images packed/images_0.tar.gz --output f
like "$(out)" "f: 100 images" "--images names one archive"
cp packed/images_0.tar.gz packed/again.tgz
expect_status 3 "${run[@]}" --images packed --output o
error_line "line 2: image 00000001_000.png matches two files: packed/images_0.tar.gz/images/00000001_000.png, packed/again.tgz/images/" \
    "an image in two archives is refused"
[ ! -e o ]
ok $? "no file is left"
rm packed/again.tgz

# Bad images within archives.
cp -r ph/images bad
head -c 300 ph/images/00000002_000.png >bad/00000002_000.png
: >bad/00000003_000.png
tar -C bad -cf bad.tar .
gzip -nc bad.tar >bad.tar.gz
"${run[@]}" --images bad --output bad0 --max-bad 2 --quiet || fail "loose"
for archive in bad.tar bad.tar.gz; do
    expect_status 3 "${run[@]}" --images $archive --output o --max-bad 1
    error_line "2 images cannot be used \(--max-bad is 1\): $archive/00000002_000.png: " "$archive: too many bad images"
    expect_status 0 "${run[@]}" --images $archive --output o --max-bad 2
    is "$(sed "s|$archive/|bad/|" o/rejected.csv)" "$(cat bad0/rejected.csv)" "$archive: the same reasons"
    diff -r bad0/train o/train
    ok $? "$archive: and the same shards"
    rm -rf o
done

# Faults: a cut tar, a cut gzip, a wrong checksum, a text file; each names the last whole member.
mkdir cut
size=$(stat -c %s tars/images_1.tar)
fault() { # NAME REGEX: images_1 is cut/NAME
    cp tars/images_0.tar tars/images_2.tar cut
    expect_status 3 "${run[@]}" --images cut --output o
    error_line "$2" "$1"
    [ ! -e o ]
    ok $? "no file is left"
    rm -rf cut/*
}
head -c $((size / 2)) tars/images_1.tar >cut/images_1.tar
fault "a cut .tar" "^chex-shard error: cut/images_1.tar: the archive ends in the middle of a member: it is truncated, after the last whole member images/0.*png; [0-9]+ images of ph/labels.csv were not found"
gsize=$(stat -c %s packed/images_1.tar.gz)
head -c $((gsize / 2)) packed/images_1.tar.gz >cut/images_1.tar.gz
fault "a cut .tar.gz" "cut/images_1.tar.gz: gzip: the file ends in the middle of the data, near byte [0-9]+ of the file, after the last whole member images/0"
cp packed/images_1.tar.gz cut
printf '\xff\xff\xff\xff' | dd of=cut/images_1.tar.gz bs=1 seek=$((gsize / 2)) conv=notrunc 2>/dev/null
cp tars/images_0.tar tars/images_2.tar cut
expect_status 3 "${run[@]}" --images cut --output o
rm -rf cut/*
cp ph/labels.csv cut/images_1.tar
fault "no archive at all" "cut/images_1.tar: .*, before the first member; 100 images of"
# A fault after the last wanted image is a warning.
for damage in checksum end; do
    cp tars/images_0.tar tars/images_2.tar cut
    if [ $damage = checksum ]; then
        cp packed/images_1.tar.gz cut
        printf '\xff\xff' | dd of=cut/images_1.tar.gz bs=1 seek=$((gsize - 8)) conv=notrunc 2>/dev/null
    else
        last=$(tail -n 1 part-01)
        at=$(tar -tRf tars/images_1.tar | sed -nE "s|^block ([0-9]+): images/$last.*|\1|p")
        bytes=$(stat -c %s "ph/images/$last")
        head -c $(((at + 1) * 512 + (bytes + 511) / 512 * 512)) tars/images_1.tar >cut/images_1.tar
    fi
    expect_status 0 "${run[@]}" --images cut --output o
    like "$(err)" "warn: cut/images_1.*(incorrect data check|ends without its end mark)" "$damage: a warning"
    diff -r whole o
    ok $? "$damage: the set is whole"
    rm -rf o cut/*
done

# Members that are no images we could mean.
mkdir odd
cp -r ph/images odd/images
ln -s 00000001_000.png odd/images/link.png
ln odd/images/00000001_000.png odd/images/zhard.png
mkfifo odd/images/pipe.png
: >odd/images/._00000001_000.png
cp ph/images/00000005_000.png odd/images/.00000001_000.png
tar -C odd --sort=name -czf odd.tgz ./images
expect_status 0 "${run[@]}" --images odd.tgz --output o
diff -r whole o
ok $? "links, pipes and hidden names are passed over"
rm -rf o
sed 's/^00000005_000.png/link.png/' ph/labels.csv >linked.csv
rm odd/images/link.png && ln -s gone.png odd/images/link.png
tar -C odd --sort=name -czf odd.tgz ./images && tar -C odd --sort=name -cf odd.tar ./images
for source in odd odd.tar odd.tgz; do
    why='a link to gone.png, expected a file: unpack the archive'
    [ $source != odd ] || why='a link to a file that does not exist'
    expect_status 3 "${run[@]}" --images $source --labels linked.csv --output o
    like "$(err)" "image link.png is not under $source: it is $why" "$source: a link that is missed is named as such"
done

# kill -9 while spools are made; --resume redoes only the archive in work.
partial=o/.chex-shard-partial
interrupt() {
    "${run[@]}" --images packed --output o --workers 1 --quiet 2>/dev/null &
    pid=$!
    wait_in_run $pid compgen -G "$partial/spool-*[0-9a-f]" >spools
    kill -9 $pid
    wait $pid 2>/dev/null
}
interrupt
spools=$(find $partial -name 'spool-*' ! -name '*.tmp.*' 2>/dev/null | wc -l)
if [ -e o/manifest.json ]; then
    skip "the run was over before it could be killed" 6
else
    expect_status 2 "${run[@]}" --images packed --output o
    error_line "o holds an interrupted run" "an interrupted run is not overwritten"
    expect_status 0 "${run[@]}" --images packed --output o --resume
    is "$(grep -c 'were resized by the interrupted run' err)" "$spools" "the $spools whole spools are kept"
    diff -r whole o
    ok $? "the set has the bytes of an uninterrupted run"
    [ ! -e $partial ]
    ok $? "the partial folder is gone"
fi

# The disk is too small for shards and spools together.
mkdir small
if mount -t tmpfs -o size=1500k none small 2>/dev/null; then
    at_exit umount -l "$SCRATCH/small"
    expect_status 9 "${run[@]}" --images packed --size 64 --output small/o
    error_line "the images of compressed archives that wait for them take .* and small/o has only" \
        "the spools' space counts"
    is "$(ls -A small)" "" "nothing was written"
else
    skip "cannot mount a tmpfs here (not root)" 3
fi
done_testing
