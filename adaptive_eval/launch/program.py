"""Whether the program of a command is there."""

import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path


def missing_program(command: Sequence[str], environment: Mapping[str, str], folder: Path) -> str | None:
    """What is wrong where the program cannot be found as the server would find it; None where all is well."""
    program = command[0]
    if os.sep in program:
        found = shutil.which(folder / program)
        return None if found else f"{program} is not a program, seen from {folder}"
    if shutil.which(program, path=environment.get("PATH", os.defpath)):
        return None
    mend = "pip install vllm, or give launch.command" if program == "vllm" else "install it, or give its whole path"
    return f"the program {program} is not found on the PATH; {mend}"
