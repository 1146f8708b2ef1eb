#!/bin/sh
# Installs hptune in /opt/hptune; Containerfile and hptune.def run it in /build.
#
#   install.sh packages LOCK    the packages of containers/locks/LOCK.txt, and no others
#   install.sh hptune           hptune itself, from the source in the current directory
set -eu

tools=/build/tools
target=/opt/hptune

case "$1" in
packages)
    python3 -m venv "$tools"
    "$tools/bin/python" -m pip install --no-cache-dir --require-hashes -r containers/locks/build.txt
    # Without pip: nothing is installed in an image that runs.
    python3 -m venv --without-pip "$target"
    "$tools/bin/python" -m pip --python "$target/bin/python" install --no-cache-dir \
        --only-binary=:all: --require-hashes -r "containers/locks/$2.txt"
    # Headers, a library of the C compiler and the packages' own tests: nothing runs them here.
    # What else lies in the folders of tests is used, by numpy.testing for example.
    cd "$target"/lib/python3*/site-packages
    rm -rf tensorflow/include clang
    find . -path '*/tests/*' -type f -name 'test_*' -delete
    find . -path '*/tests/data/*' -type f -delete
    ;;
hptune)
    "$tools/bin/hatchling" build --target wheel --directory /build/wheel
    "$tools/bin/python" -m pip --python "$target/bin/python" install --no-cache-dir \
        --no-deps --no-index /build/wheel/*.whl
    ;;
*)
    echo "install.sh: $1 is unknown; allowed are packages and hptune" >&2
    exit 2
    ;;
esac
