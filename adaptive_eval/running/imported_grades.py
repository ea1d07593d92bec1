"""Going on with imported trials whose grades no known grader gives: with one that does, or after grading all anew."""

from contextlib import closing
from dataclasses import replace
from pathlib import Path

from adaptive_eval.base.errors import RunChanged
from adaptive_eval.config.prepare import PreparedRun, stored_config, stored_questions
from adaptive_eval.graders.agreement import Agreement, GradedAnswer, Reservoir, agreement
from adaptive_eval.graders.registry import Logged
from adaptive_eval.graders.types import GraderOptions, MarkedAnswer
from adaptive_eval.running.regrade import with_scores
from adaptive_eval.store import GraderChosen, RunHeader, RunReader, Store
from adaptive_eval.store.thresholds import kept_rubric


async def adopt_grader(prepared: PreparedRun, directory: Path) -> None:
    """Make the configuration's grader that of the stored run; raises `RunChanged` where it gives other grades."""
    found = await require_agreement(prepared, directory)
    if found is None:
        return
    with closing(Store.attach(directory)) as store:
        chosen, header = GraderChosen(found.grader, found.compared), store.reader.header()
        store.regrade([], chosen, _taken_over(header, prepared.header))


async def require_agreement(prepared: PreparedRun, directory: Path) -> Agreement | None:
    """Grade a sample of the stored answers by the configuration's grader; None where the run has a grader already."""
    with RunReader.if_begun(directory) as reader:
        if reader is None:
            return None
        header = reader.header()
        if not isinstance(stored_config(header).grader, Logged):
            return None
        sample, events = _sample(reader, header, prepared.config.grader), reader.events()
    config = prepared.config
    rubric = kept_rubric(stored_config(header).rubric, events)
    found = await agreement(config.grader, rubric, sample, config.folder, config.keys)
    if not found.all_agree or not sample:
        told = found.summary if sample else "no stored answer has a text that could be graded again"
        head = f"the grades in {directory} are those of its logs, and new answers may be graded otherwise: {told}"
        examples = [f"  {one}" for one in found.examples]
        mend = (
            "Choose a grader that gives these grades, or have all stored answers graded by this one: "
            f"adaptive-eval regrade {directory} --config CONFIG"
        )
        raise RunChanged("\n".join([head, *examples, mend]))
    return found


def _sample(reader: RunReader, header: RunHeader, grader: GraderOptions) -> list[GradedAnswer]:
    questions = {question.id: question for question in stored_questions(header)}
    reservoir = Reservoir()
    for record in with_scores(reader.trials(), questions.values(), grader):
        if record.category is not None and (record.answer.text or isinstance(record.answer, MarkedAnswer)):
            reservoir.offer(GradedAnswer(questions[record.question], record.answer, record.category))
    return reservoir.answers


def _taken_over(stored: RunHeader, now: RunHeader) -> RunHeader:
    """The stored run with the grader of today; what else has changed is for the resume to judge."""
    meaning = {**stored.meaning, "grader": now.meaning["grader"]}
    configuration = {**stored.configuration, "grader": now.configuration["grader"]}
    return replace(stored, meaning=meaning, configuration=configuration)
