#!/bin/sh
# Has each Python of the image, and those of the virtual environments in $@, load verifier_hook.py when it starts. With
# $RUNNER_FOR, the folder of the agent's work, the first Python with pytest waits in runner.py for calls of it.
homes="$PATH:/usr/bin:/usr/local/bin:/opt/*/bin:/opt/miniconda3/envs/*/bin:/root/.venv/bin"
homes="$homes:/root/.pyenv/versions/*/bin:/root/.local/share/uv/python/*/bin:/root/.local/share/uv/tools/*/bin"
for folder; do homes=$homes:$folder/bin; done
python=
read -r hook < /verifier/verifier_hook.pth
IFS=:
# shellcheck disable=SC2086 # they are to be split, and patterns
for home in $homes; do
    for place in "${home%/*}"/lib/python3*/site-packages "${home%/*}"/lib/python3*/dist-packages; do
        if [ -d "$place" ] && [ ! -e "$place/verifier_hook.pth" ]; then
            echo "$hook" > "$place/verifier_hook.pth"
            version=${place%/*}
            [ "$python" ] || [ ! -d "$place/pytest" ] || python=${home%/*}/bin/${version##*/}
        fi
    done
done
if [ "$RUNNER_FOR" ] && [ -x "$python" ]; then
    folder=$RUNNER_FOR
    unset RUNNER_FOR
    cd /
    "$python" -c 'import sys, verifier_hook; verifier_hook.loaded("runner").serve(sys.argv[1])' "$folder" \
        < /dev/null > /dev/null 2>&1 &
fi
