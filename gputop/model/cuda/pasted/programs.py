"""Names of commands: programs that people run on GPUs, tools that use none, words of a sentence."""

from __future__ import annotations


def words(text: str) -> frozenset[str]:
    """Return the words of a text."""
    return frozenset(text.split())


PROGRAMS = words(
    """
    R Rscript accelerate axolotl blender colossalai composer deepspeed fairseq-train ffmpeg
    gmx horovodrun java julia jupyter jupyter-lab jupyter-notebook litgpt llama-cli
    llama-server llamafactory-cli lmdeploy lua matlab namd3 nnUNetv2_train node
    nvidia-cuda-mps-control octave ollama perl ray ruby sglang streamlit swift
    text-generation-launcher torchrun tritonserver trtllm-serve vllm yolo
    """
)
"""Programs that people run on GPUs."""
QUIET = words(
    """
    . : [ apt apt-get awk basename bc bg bind brew cat cd chmod chown clear cmake column
    complete conda cp crontab curl cut date deactivate df diff dirname disown dmesg dnf docker
    docker-compose yes
    du echo egrep enable expr fg fgrep file find free g++ gcc getopts git gpustat gputop grep
    groups gunzip hash head hf history hostname htop huggingface-cli id jobs journalctl kill
    killall less ln logger logout ls lscpu lsof lspci mamba man md5sum micromamba mkdir ml
    module more mv nl npm nproc numfmt nvcc nvcc-smi nvidia-settings nvidia-smi nvitop nvtop
    open pip pip3 pkill podman popd printenv printf ps pushd pwd pyenv readlink realpath reset
    rm rsync sacct scancel scp sed seq service sha256sum shift shopt sinfo sleep sort source
    spack squeue stat stty sync systemctl tail tar tee tensorboard test times top touch tput
    tr trap tree true type ulimit umask uname uniq unzip uptime virtualenv w wait wandb wc
    wget which who whoami xdg-open yum
    """
)
"""Tools that use no GPU or only show it: their variables do not matter."""
PROSE = words(
    """
    I a also and are as be because before but by can did didn't does doesn't environment
    failed for from has if in instead is it makes means must not of on only or seems set sets
    should so that the then this to variable was we when which will with worked works would
    you
    """
)
"""Words with which a sentence goes on after NAME=VALUE."""
RESERVED = words(
    """
    ! ( (( ) )) [[ ]] case coproc do done elif else esac fi for function if in select then
    until while { }
    """
)
"""Words of the shell's grammar, which are not commands."""
MODULES = {"pip", "venv", "ensurepip", "http.server", "json.tool", "site", "black", "ruff"}
"""Modules of Python (`python -m`) that use no GPU."""
