"""gputop as a library: programs that import it, on the simulated driver."""
