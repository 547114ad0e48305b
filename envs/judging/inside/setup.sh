#!/bin/sh
# Has each Python of the image, and those of the virtual environments in $@, load verifier_hook.py when it starts.
homes="$PATH:/usr/bin:/usr/local/bin:/opt/*/bin:/opt/miniconda3/envs/*/bin:/root/.venv/bin"
homes="$homes:/root/.pyenv/versions/*/bin:/root/.local/share/uv/python/*/bin:/root/.local/share/uv/tools/*/bin"
for folder; do homes=$homes:$folder/bin; done
IFS=:
# shellcheck disable=SC2086 # they are to be split, and patterns
for home in $homes; do
    for place in "${home%/*}"/lib/python3*/site-packages "${home%/*}"/lib/python3*/dist-packages; do
        if [ -d "$place" ] && [ ! -e "$place/verifier_hook.py" ]; then
            cp /verifier/verifier_hook.py "$place/" && echo 'import verifier_hook' > "$place/verifier_hook.pth"
        fi
    done
done
