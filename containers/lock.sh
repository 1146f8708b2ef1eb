#!/bin/sh
# Writes containers/locks: the packages of the images with their versions and hashes.
#
#   python3 -m pip install uv
#   sh containers/lock.sh              # keeps versions that still fit
#   sh containers/lock.sh --upgrade
set -eu
cd "$(dirname "$0")/.."
mkdir -p containers/locks

# lock NAME ARGUMENT…: for every Python from 3.11 on, on Linux.
lock() {
    name=$1
    shift
    uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-annotate \
        --default-index https://pypi.org/simple --only-binary :all: \
        --custom-compile-command "sh containers/lock.sh" \
        --output-file "containers/locks/$name.txt" "$@"
}

core=pyproject.toml
linux="sys_platform == 'linux'"
printf 'hatchling\n' | lock build -
lock none-cpu $core
printf "tensorflow-cpu; %s\nkeras-tuner; %s\n" "$linux" "$linux" | lock tensorflow-cpu $core -
printf "tensorflow[and-cuda]; %s\nkeras-tuner; %s\n" "$linux" "$linux" | lock tensorflow-cuda $core -
lock jax-cpu $core --extra jax
printf "jax[cuda12]; %s\n" "$linux" | lock jax-cuda $core --extra jax -
lock torch-cuda $core --extra torch
