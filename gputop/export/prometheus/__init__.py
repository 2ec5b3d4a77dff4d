"""A frame as Prometheus reads it: metric families, and the text of them.

family.py      families that are being filled: a value that is unknown makes no sample
gpus.py        gputop's own names, base units: GPUs and MIG devices by the registry, findings, free
people.py      ... of who is on them: sums by user and by job, and processes where they are wanted
dcgm.py        the names, labels and units of NVIDIA's dcgm-exporter instead
exposition.py  the newest frame of a source, all of the machine, as text for whoever asks
rules.yml      recording rules and alerts on gputop's own names

A GPU that does not answer has no values: its last ones would look like a machine that idles, or
works. `gputop_gpu_up` and `gputop_gpu_reading_age_seconds` are there at any time. Names of metrics
are part of what users rely on, as the fields of the JSON are.
"""
