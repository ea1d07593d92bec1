"""Record golden runs anew: `python tests/golden/record.py NAME...`, or without a name all of them.

Look at what `git diff` says before you commit it: every line is something that users will see.
"""

import sys
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent), str(HERE.parent / "running"), str(HERE.parents[1])]

from golden_cases import CASES  # noqa: E402
from golden_record import Line, lines_of, parts_of, write  # noqa: E402
from golden_stage import Stage  # noqa: E402


def played(name: str, folder: Path) -> list[Line]:
    """Play a golden run; gives what is compared of it."""
    with ExitStack() as exits:
        CASES[name].play(stage := Stage(folder, exits))
        return compared(name, stage)


def compared(name: str, stage: Stage) -> list[Line]:
    """What is compared of a golden run that was played on this stage."""
    case = CASES[name]
    asked: list[Line] = [["asked", stage.asked]] if stage.servers and not case.ahead else []
    return parts_of([*asked, *lines_of(stage.directory(), stage.folder, case.ahead)], case.parts)


if __name__ == "__main__":
    for name in sys.argv[1:] or [name for name, case in CASES.items() if case.expected == name]:
        with TemporaryDirectory() as folder:
            write(name, played(name, Path(folder)))
