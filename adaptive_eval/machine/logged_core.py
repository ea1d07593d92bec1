"""The decision core of a run, told of the log in its order, live and on a resume alike.

What follows from the log (looks, alarms, models that the core sets aside) is emitted as derived records.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from adaptive_eval.core.controller import Controller, Judged
from adaptive_eval.core.plan import Plan
from adaptive_eval.core.stages import StageBefore
from adaptive_eval.core.types import NO_COST, Cause, Cost, ModelNumbers, Outcome, SetAside
from adaptive_eval.machine.alarms import Alarms, core_alarm_note
from adaptive_eval.machine.charges import Account, Charge, ChargeKind, sum_costs
from adaptive_eval.machine.derived import DerivedRecords
from adaptive_eval.machine.events import Setting, StageBegun
from adaptive_eval.machine.records import ALARM, CORE_SET_ASIDE, SET_ASIDE, LookTaken, Note, Row
from adaptive_eval.machine.trial import DONE, UNGRADED, Key, Trial


class LoggedCore:
    """The decision core, and what it was told of."""

    def __init__(
        self,
        setting: Setting,
        *,
        account: Account,
        alarms: Alarms,
        derived: DerivedRecords,
        regraded_at: int,
        unasked: Collection[Key],
        aside: Mapping[int, str],
        ungraded: Mapping[int, tuple[str, str]],
    ) -> None:
        """`regraded_at`: as in `Machine`; `unasked`: trials that the core has not asked for; `aside`: models that are
        asked nothing more; `ungraded`: by model, an answer that the grader could not grade, and its error."""
        self._account, self._alarms, self._derived = account, alarms, derived
        self._unasked, self._aside, self._ungraded = unasked, aside, ungraded
        self.is_live = False
        """Whether the log was replayed, or is not to be."""
        self.has_others = False
        """Whether the log has answers of models that are not in the run."""
        self._regraded_at = regraded_at
        """Until the replay has come there, the core decides nothing: all that is before it is there at its first look,
        whichever came first."""
        self._aside_before: list[SetAside] = []
        """Models that were set aside before that."""
        self._earlier: list[Mapping[int, int]] = []
        """The positions of the models in the stages before this one, the latest first."""
        self._raised: list[Note] = []
        """Alarms of the looks that are being taken."""
        self._use(setting, self._new_controller(setting, setting.plan))
        self._looked = len(self.controller.looks)

    def _use(self, setting: Setting, controller: Controller) -> None:
        self.setting, self.controller = setting, controller
        self.position = setting.position
        """The core's position of each model."""

    def _new_controller(self, setting: Setting, plan: Plan, outside: tuple[int, Cost] = (0, NO_COST)) -> Controller:
        """A core for these settings, which is told of models whose answers repeat."""
        opening = dict(zip(setting.roster, plan.opening, strict=True))
        self._alarms.use(setting.alarms, setting.questions, opening, plan.bench.weights)
        find_void = partial(self._find_void, setting.roster)
        return Controller(plan, outside_plan=outside, settles_losses=False, find_void=find_void)

    def _find_void(
        self, roster: Sequence[int], judged: Judged, in_play: Collection[int], is_last: bool
    ) -> dict[int, str]:
        by_model = {roster[position]: trials for position, trials in judged.items()}
        self._raised += self._alarms.on_look([roster[position] for position in in_play], by_model, is_last=is_last)
        void = self._alarms.void
        return {position: void[roster[position]] for position in judged if roster[position] in void}

    # -- the log ---------------------------------------------------------------------------------------------------

    def tell(self, rows: Iterable[Row]) -> bool:
        """Tell the core of rows that are on disk, in their order, and derive what follows; returns whether a look was
        taken."""
        answers, alarms = list[Trial](), self._alarms
        for seq, record in rows:
            if type(record) is Trial:
                if record.state is DONE or record.state is UNGRADED:
                    answers.append(record)
                    alarms.add(record)
            elif type(record) is Charge:
                if record.kind is ChargeKind.WASTED and record.what == "verdict":
                    alarms.usage(record.model).add_wasted_verdicts(record.number, record.cost)
                if record.kind in (ChargeKind.DISCARDED, ChargeKind.UNANSWERED):
                    self.controller.spend_outside_plan(0, record.cost)  # its trials are asked again
                elif not record.estimated and self.setting.plan.budget.bought:
                    self._tell(answers)
                    answers = []
                    self._lose(record)
            elif type(record) is Note and record.kind == SET_ASIDE and record.model in self.position:
                self._tell(answers)
                answers = []
                self._tell_set_aside(SetAside(self.position[record.model], str(record.body.get("reason", ""))))
            elif type(record) is Note and record.kind == ALARM:
                self._tell(answers)
                answers = []
                alarms.restore(record)
                self._leave_out_void(record)
            if seq == self._regraded_at:
                self._tell(answers)
                answers = []
                self._begin_looks()
        self._tell(answers)
        return self._derive()

    def _leave_out_void(self, alarm: Note) -> None:
        """Have the core go on without a model whose answers repeat: at this start it need not be found again."""
        at = None if alarm.model is None else self.position.get(alarm.model)
        if alarm.model in self._alarms.void and at is not None and at not in self.controller.set_aside:
            self._tell_set_aside(SetAside(at, str(alarm.body["text"]), Cause.ANSWERS))

    def _tell_set_aside(self, event: SetAside) -> None:
        if self._regraded_at:
            self._aside_before.append(event)
        elif self.controller.finished is None:
            self.controller.tell([event])

    def _begin_looks(self) -> None:
        """Have the core decide by all that it was told of before the regrade, and by what that has cost in all."""
        self._regraded_at = 0
        self.controller.take(())
        self.controller.tell(())
        for event in self._aside_before:
            self._tell_set_aside(event)
        self._aside_before.clear()

    def _tell(self, answers: Sequence[Trial]) -> None:
        """Tell the core of answers: those that no round holds are kept."""
        if not answers:
            return
        controller, position = self.controller, self.position
        outcomes: list[Outcome] = []
        is_expected = self.is_live and controller.finished is None
        for trial in answers:
            at = position.get(trial.model)
            if at is None:
                controller.spend_outside_plan(1, trial.total)
                self.has_others = True
                continue
            outcomes.append(_outcome(at, trial))
            if at in controller.set_aside or trial.key in self._unasked:
                is_expected = False
        if self._regraded_at:
            controller.keep(outcomes)
        elif is_expected:
            controller.tell(outcomes)
        else:
            controller.take(outcomes)
            controller.tell(())

    def _lose(self, charge: Charge) -> None:
        if charge.model not in self.position or self._regraded_at:
            self.controller.spend_outside_plan(0, charge.cost)
        else:
            self.controller.lose(charge.cost)

    def _derive(self) -> bool:
        """Emit the looks that the core has taken, alarms, and the models that it has set aside; returns whether there
        is a look."""
        controller = self.controller
        looks, self._looked = controller.looks[self._looked :], len(controller.looks)
        for look in looks:
            self._derived.emit(LookTaken(look.index, self.setting.describe(look)))
        for position, lost in controller.set_aside.items():
            model = self.setting.roster[position]
            if model not in self._aside:
                reason = lost.reason
                if lost.cause is Cause.GRADER and model in self._ungraded:
                    reason = "{}; on question {}: {}".format(reason, *self._ungraded[model])
                self._derived.emit(Note(CORE_SET_ASIDE, model, {"cause": lost.cause.value, "reason": reason}))
        roster, questions = self.setting.roster, self.setting.questions
        raised = [core_alarm_note(alarm, roster[alarm.model], questions) for alarm in controller.alarms]
        for note in raised + self._raised:
            self._derived.emit(note)
        self._raised.clear()
        return bool(looks)

    # -- stages ----------------------------------------------------------------------------------------------------

    def numbers_by_stage(self, roster: Sequence[int]) -> list[ModelNumbers]:
        """The core's numbers of models in this stage and in those before it, the latest first."""
        return [tuple(map(then.get, roster)) for then in (self.position, *self._earlier)]

    def begin_stage(self, event: StageBegun) -> None:
        """Go on under other settings from here, with the looks that were taken."""
        setting, before = event.setting, self.controller
        numbers, position = self.numbers_by_stage(setting.roster), setting.position
        self._earlier.insert(0, self.position)
        stage = StageBefore(
            before,
            numbers[0],
            setting.verdicts_stand,
            [_outcome(position[trial.model], trial) for trial in event.returning if trial.state in (DONE, UNGRADED)],
            numbers[1:],
        )
        removed = [account for model, account in self._account.models.items() if model not in setting.roster]
        cost = sum_costs(account.paid.cost for account in removed)
        charged = sum_costs(account.charged.cost for account in self._account.models.values())
        is_capped = self.setting.plan.budget.bought
        outside = sum(account.answers for account in removed), cost.plus(charged) if is_capped else cost
        self._use(setting, self._new_controller(setting, replace(setting.plan, before=stage), outside))
        self._derived.begin_stage()
        self.controller.take(())
        self.controller.tell(())
        self._derive()


def _outcome(position: int, trial: Trial) -> Outcome:
    """A graded trial as the core gets it."""
    return Outcome(position, trial.question, trial.number, trial.category, trial.total, trial.kinds, trial.seconds)
