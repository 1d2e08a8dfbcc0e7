"""The command `python -m memory_pipeline.embedded.ollama`."""

from __future__ import annotations

import argparse
import logging
import os
import sys
from pathlib import Path

# Read when numpy is imported. Each text is encoded by one thread and the texts side by side: threads within one small
# matrix product spend more time waiting for each other than they save.
os.environ["OPENBLAS_NUM_THREADS"] = "1"

from memory_pipeline.embedded.ollama.app import make_app
from memory_pipeline.embedded.serving import StartRefused, serve

EXIT_NOT_STARTED = 2
MOST_WORKERS = 4


def main() -> int:
    """Serve until a signal. 0 stopped, 2 not started (and one line says why)."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    options = _options()
    workers = min(len(os.sched_getaffinity(0)), MOST_WORKERS)
    try:
        serve(make_app(workers), options.host, options.port, options.ready_file)
    except StartRefused as refusal:
        sys.stderr.write(f"embedded ollama: {refusal}\n")
        return EXIT_NOT_STARTED
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m memory_pipeline.embedded.ollama", description=__doc__)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True, help="0 for any that is free")
    parser.add_argument("--ready-file", type=Path, required=True, help="written once it listens: pid and port as JSON")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
