"""A frame as Prometheus reads it: metric families, and their text.

family.py      families that are being filled; an unknown value makes no sample
gpus.py        gputop's own names, base units: GPUs and MIG devices, findings, which GPUs are free
people.py      gputop's own names: sums by user and by job, and processes if wanted
dcgm.py        the names, labels and units of NVIDIA's dcgm-exporter
exposition.py  the newest frame of a source, with the whole machine, as text
rules.yml      recording rules and alerts on gputop's own names
dashboard.py   a dashboard for Grafana, of gputop's own names

A GPU that does not answer has no values: its last ones would look like an idle or a busy GPU.
While the driver can be read, `gputop_gpu_up` has a sample of each GPU, and
`gputop_gpu_reading_age_seconds` unless the GPU has an error.
Users rely on the names of metrics, as on the fields of the JSON.
"""
