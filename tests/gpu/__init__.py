"""gputop on real GPUs, held against nvidia-smi and the CUDA driver: one command, ten minutes.

On a machine with an NVIDIA driver (a rented one will do; root is not needed), in a clone of gputop:

    python3 -m venv .venv && .venv/bin/pip install -q -e '.[test]'
    .venv/bin/pip install -q nvitop                  # if its cost is to be compared
    .venv/bin/pytest -m gpu                          # --gpu-report FOLDER; default: .gputop-gpu/

It needs no CUDA toolkit and no torch. The last lines name the report: one page to read, and the
same as JSON. What is red differs from what the driver says; send the report with a bug report.

    test_values.py     each value of each GPU and process, beside nvidia-smi in the same second
    test_mapping.py    what CUDA_VISIBLE_DEVICES means, beside the CUDA driver; values are a table
    test_processes.py  programs that hold known memory and run kernels, and their ends
    test_cost.py       what gputop asks of the driver, how long that takes, what it costs the GPU
    cuda.py            those programs; values.py where nvidia-smi says what gputop says
    report.py          the report; conftest.py what the tests share

It is kind to a machine that others use: its programs go to GPUs that nobody uses or has reserved,
hold a few hundred MiB for seconds, and only they get signals. No setting of a GPU is changed.
Without a free GPU the tests of processes are skipped, and the others still run.

The tests themselves are tested on a simulated driver, and on drivers that lie
(tests/test_gpu_tests.py). By hand: `python -m tests.driver h200x8 -- pytest -m gpu`.
"""
