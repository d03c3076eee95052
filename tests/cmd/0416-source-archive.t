#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The archive of the source that cpack makes: the files of the commit and no others, its digest, the
# recipes made for it. It configures where there is no git.
source "$(dirname "$0")/lib.sh"
need git cmake cpack
version=$(chex-train --version | sed -n '1s/.* //p')

# A clone with files that differ from its commit, by the script that cpack runs.
files_of() { # FOLDER: fills `files` from the commit of the clone FOLDER
    rm -rf files
    cmake -DCHEX_SOURCE="$SCRATCH/$1" -DCMAKE_INSTALL_PREFIX="$SCRATCH/files" \
        -P "$SOURCE/cmake/source_files.cmake"
}
git -c init.defaultBranch=main init -q clone
mkdir clone/folder
echo committed | tee clone/kept clone/folder/script clone/removed >/dev/null
chmod +x clone/folder/script
printf 'ignored\n' >clone/.gitignore
git -C clone add .
git -C clone -c user.name=test -c user.email=test@localhost commit -qm test
echo later >>clone/kept
touch clone/new clone/ignored
rm clone/removed
expect_status 0 files_of clone
is "$(cd files && find . -type f | sort | tr '\n' ' ')" "./.gitignore ./folder/script ./kept ./removed " \
    "the archive holds the files of the commit, whatever lies in the folder"
is "$(cat files/kept)" committed "a changed file is that of the commit"
[ -x files/folder/script ] && [ ! -x files/kept ]
ok $? "the modes are those of the commit"
like "$(err)" "files that differ from commit [0-9a-f]{40} are not in the archive" "a line says that files differ"
mkdir clone/inner plain
expect_status 1 files_of clone/inner
like "$(err)" "this folder is no clone of its own" "a tree inside another repository is refused"
expect_status 1 files_of plain
like "$(err)" "not a git repository" "a tree without a repository is refused"

if [ -e "$SOURCE/.git" ]; then
    expect_status 0 cpack --config "$BUILD/CPackSourceConfig.cmake" -G TGZ -B "$SCRATCH/made" \
        -D CHEX_ARCHIVE_URL=https://site.example/src
    archive=chexnet-$version.tar.gz
    tar -xzf "made/$archive"
    is "$(cd "chexnet-$version" && find . ! -type d | sed 's|^\./||' | sort)" \
        "$(git -C "$SOURCE" ls-tree -r --name-only HEAD | sort)" "the archive of this tree holds its commit"
    (cd made && sha256sum --status -c "$archive.sha256")
    ok $? "sha256sum accepts the digest file"
    digest=$(cut -d' ' -f1 "made/$archive.sha256")
    recipes=made/recipes
    is "$(cd $recipes && find . -type f | sort | tr '\n' ' ')" \
        "./apptainer/chexnet.def ./easybuild/chexnet-$version-foss-2025b.eb $(
        )./spack/spack_repo/chexnet/packages/chexnet/package.py ./spack/spack_repo/chexnet/repo.yaml " \
        "each recipe is made for this version"
    is "$(grep -rlE '@[A-Z_]+@' $recipes)" "" "no recipe has an open place"
    is "$(grep -rl "$digest" $recipes | wc -l)" 3 "the recipes expect the digest of this archive"
    is "$(grep -rl "https://site.example/src" $recipes | wc -l)" 2 "two recipes fetch it from the site's folder"
    if python_with sys; then
        expect_status 0 "$python" -c 'import sys
for name in sys.argv[1:]: compile(open(name).read(), name, "exec")' "$recipes"/easybuild/*.eb \
            "$recipes"/spack/spack_repo/chexnet/packages/chexnet/package.py
    else
        skip "no Python here"
    fi
    # A git that fails, and says that it was called.
    mkdir bin
    printf '#!/bin/sh\ntouch %s/called\nexit 1\n' "$SCRATCH" >bin/git
    chmod +x bin/git
    expect_status 0 env PATH="$SCRATCH/bin:$PATH" cmake -S "chexnet-$version" -B build -DCHEX_WITH_CUDA=OFF
    [ ! -e called ]
    ok $? "the archive is configured without git"
    like "$(out)" "chexnet $version, Release" "it is this version, and a release build"
else
    skip "the source is no clone" 10
fi
done_testing
