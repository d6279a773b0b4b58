#!/bin/sh
# Installs what `./run bench feed` compares with and no other part needs, apart from .venv. DeepSpeed
# builds its writer at the first use, in two minutes, where libaio-dev is installed.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
DS_BUILD_OPS=0 "$root/.venv/bin/pip" install --quiet --no-deps --no-build-isolation --upgrade \
  --target "$root/out/bench/baselines" \
  torchsnapshot==0.1.0 pyyaml==6.0.3 aiofiles==25.1.0 importlib_metadata==8.7.0 zipp==4.1.2 \
  deepspeed==0.19.8 hjson==3.1.0 ninja==1.13.2 psutil==7.2.2 py-cpuinfo==9.0.0 einops==0.8.2 \
  pydantic==2.14.3 pydantic_core==2.50.4 annotated_types==0.8.0 typing_inspection==0.4.5
