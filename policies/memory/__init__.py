"""From a serving step to its memory time: access streams, probes, sampling, full simulation."""
