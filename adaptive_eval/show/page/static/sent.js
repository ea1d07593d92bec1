// What the server sends, or a report carries: its types, field by field, and how it is read. Numbers that do not exist
// are null. A test compares every field with what is sent.

/**
 * @typedef {object} RunView
 * @property {Results | null} results
 * @property {string} name
 * @property {ObjectiveView} objective
 * @property {DecisionsInWords} words
 * @property {Record<string, any>} configuration
 * @property {number[]} weights
 * @property {string[]} categories
 * @property {string[]} models
 * @property {QuestionView[]} questions
 * @property {number[][]} trials
 * @property {PosteriorView[]} posteriors
 * @property {number[][]} posterior_of
 * @property {LookView[]} looks
 * @property {((number | null)[])[]} z
 * @property {number | null} trials_to_go
 * @property {Spending[]} spending
 * @property {ReplicaTraffic[]} traffic
 * @property {TranscriptEnd[]} transcripts
 * @property {EventView[]} events
 * @property {number} elapsed
 * @property {string | null} error
 * @property {string | null} ended
 * @property {Advice[]} next_steps
 * @property {string} place
 * @property {string | null} thresholds
 * @property {BatchRow[]} batches
 * @property {SiteView[]} sites
 * @property {Rescoring | null} rescored
 * @property {JudgeUse | null} judge
 * @property {string | null} orders
 * @property {OtherCostRow[]} besides
 * @property {string[]} by_trial
 * @property {string[]} finding
 * @property {string | null} counted
 * @property {string[]} verdicts
 */

/**
 * @typedef {object} Advice
 * @property {string} says
 * @property {string | null} command
 */

/**
 * @typedef {object} LabelledRun
 * @property {string} digest
 * @property {string} grader
 * @property {string[]} levels
 * @property {LabelledModel[]} models
 * @property {boolean} differ
 * @property {number} left_out
 * @property {string | null} problem
 * @property {boolean} alone
 * @property {string | null} by_grades
 */

/**
 * @typedef {object} LabelledModel
 * @property {string} name
 * @property {number} trials
 * @property {number} labels
 * @property {number[][]} confusion
 * @property {number | null} score
 * @property {number | null} sigma
 * @property {number | null} corrected
 * @property {number | null} corrected_sigma
 * @property {number | null} shift
 * @property {number | null} shift_sigma
 */

/**
 * @typedef {object} GradedPair
 * @property {string} better
 * @property {string} verdict
 * @property {number | null} difference
 */

/**
 * @typedef {object} JudgeUse
 * @property {number} answers
 * @property {number} prompt_tokens
 * @property {number} completion_tokens
 * @property {number} usd
 * @property {number} gpu_seconds
 * @property {number} seconds
 * @property {(number | null)[]} agreements
 */

/**
 * @typedef {object} Rescoring
 * @property {string} run
 * @property {number} trials
 * @property {RescoredRubric[]} rubrics
 * @property {RubricUnavailable[]} unavailable
 * @property {boolean} with_prior
 */

/**
 * @typedef {object} RescoredRubric
 * @property {string} name
 * @property {string[]} categories
 * @property {number[]} weights
 * @property {Record<string, number>} thresholds
 * @property {string[]} fitted
 * @property {Record<string, number>} assumed
 * @property {RescoredModel[]} models
 * @property {number | null} tau_b
 */

/**
 * @typedef {object} RescoredModel
 * @property {string} name
 * @property {number | null} score
 * @property {number | null} sigma
 * @property {number | null} rank
 * @property {number | null} tier
 * @property {number[]} counts
 * @property {number} left_out
 */

/**
 * @typedef {object} RubricUnavailable
 * @property {string} name
 * @property {string} why
 */

/**
 * @typedef {object} ObjectiveView
 * @property {boolean} compares
 * @property {boolean} in_order
 * @property {string | null} baseline
 * @property {number | null} first
 * @property {number | null} value
 * @property {number | null} half_width
 */

/**
 * @typedef {object} Results
 * @property {string} format
 * @property {RunInfo} run
 * @property {Record<string, any>} decisions
 * @property {number[]} weights
 * @property {ModelRow[]} models
 * @property {PairRow[]} pairs
 * @property {([string, string | null])[]} reversals
 * @property {((number | null)[])[]} adjusted_p
 * @property {LookRow[]} looks
 * @property {never[]} questions
 * @property {Caution[]} warnings
 * @property {RunCost} cost
 * @property {number} trials_to_go
 * @property {ServerRow[]} servers
 * @property {TurnsRow[]} turns
 * @property {GateRow[]} gate
 * @property {BatchRow[]} batches
 * @property {MetricRow[]} metrics
 * @property {GroupRow[]} groups
 * @property {EarlyEnd | null} early_end
 * @property {LabelledRun | null} labelled
 * @property {AlarmRow[]} alarms
 */

/**
 * @typedef {object} AlarmRow
 * @property {string} model
 * @property {string} kind
 * @property {number} answers
 * @property {number} of
 * @property {number} before
 * @property {number} before_of
 * @property {number | null} since
 * @property {string} text
 */

/**
 * @typedef {object} EarlyEnd
 * @property {number} replays
 * @property {string | null} why_not
 * @property {number | null} spread
 */

/**
 * @typedef {object} RunInfo
 * @property {string} name
 * @property {string} version
 * @property {string} created
 * @property {string} updated
 * @property {number} active_seconds
 * @property {string} status
 * @property {string | null} reason
 * @property {number} kills
 */

/**
 * @typedef {object} ModelRow
 * @property {string} name
 * @property {number} rank
 * @property {number | null} tier
 * @property {number | null} score
 * @property {number | null} sigma
 * @property {number | null} lo
 * @property {number | null} hi
 * @property {number | null} bayes
 * @property {number | null} bayes_sigma
 * @property {number | null} sampled_sigma
 * @property {number} trials
 * @property {string | null} set_aside
 * @property {number} stored_trials
 * @property {number} ungraded
 * @property {number} repeats
 * @property {Record<string, number>} signals
 * @property {number} tokens
 * @property {number} usd
 * @property {number} gpu_seconds
 * @property {Record<string, any>} sampling
 * @property {number} prior_depth
 * @property {number | null} lowest
 * @property {number | null} highest
 * @property {string} letters
 * @property {number | null} server_seconds
 * @property {number | null} server_gpu_seconds
 * @property {number | null} corrected
 * @property {number} cut
 * @property {number | null} score_without_prior
 * @property {number | null} rank_without_prior
 * @property {GradingCost | null} grading
 * @property {string | null} recorded
 * @property {number} labels
 * @property {number | null} graded_score
 * @property {number | null} usd_per_answer
 * @property {number | null} tokens_per_answer
 * @property {number | null} seconds_per_answer
 */

/**
 * @typedef {object} PairRow
 * @property {string} better
 * @property {string | null} worse
 * @property {string} verdict
 * @property {number | null} difference
 * @property {number | null} sigma
 * @property {number | null} z
 * @property {number | null} rho
 * @property {number | null} boundary
 * @property {number | null} information
 * @property {number | null} power
 * @property {number | null} trials_needed
 * @property {number | null} sampled_z
 * @property {number | null} certifiable_delta
 * @property {CallRow | null} called
 * @property {boolean} by_trial
 * @property {number | null} variance_by_trial
 * @property {GradedPair | null} by_grades
 */

/**
 * @typedef {object} CallRow
 * @property {number} look
 * @property {number | null} z
 * @property {number | null} boundary
 */

/**
 * @typedef {object} MetricRow
 * @property {string} metric
 * @property {string} model
 * @property {number | null} value
 * @property {number | null} sigma
 * @property {number | null} lo
 * @property {number | null} hi
 */

/**
 * @typedef {object} GroupRow
 * @property {string} by
 * @property {string} group
 * @property {number} share
 * @property {number} questions
 * @property {string} model
 * @property {number} trials
 * @property {number | null} score
 * @property {number | null} sigma
 * @property {number | null} lo
 * @property {number | null} hi
 * @property {string | null} gate
 */

/**
 * @typedef {object} GateRow
 * @property {string} model
 * @property {string} baseline
 * @property {string} outcome
 * @property {string} why
 * @property {string[]} doubted
 */

/**
 * @typedef {object} LookRow
 * @property {number} look
 * @property {number} trials
 * @property {number} resolved
 * @property {number} tied
 * @property {number} open
 * @property {number} out_of_reach
 * @property {number} blocked
 */

/**
 * @typedef {object} Caution
 * @property {string} kind
 * @property {string | null} model
 * @property {string} text
 */

/**
 * @typedef {object} RunCost
 * @property {number} trials
 * @property {number} allowed_trials
 * @property {number} max_trials
 * @property {number} tokens
 * @property {number} usd
 * @property {number} gpu_seconds
 * @property {number | null} server_seconds
 * @property {number | null} server_gpu_seconds
 * @property {number | null} counted_gpu_seconds
 * @property {OtherCostRow[]} beside
 * @property {GradingCost | null} grading
 */

/**
 * @typedef {object} GradingCost
 * @property {number} answers
 * @property {number} tokens
 * @property {number} usd
 * @property {number} gpu_seconds
 * @property {WastedCost | null} in_vain
 */

/**
 * @typedef {object} WastedCost
 * @property {number} verdicts
 * @property {number} tokens
 * @property {number} usd
 * @property {number} gpu_seconds
 */

/**
 * @typedef {object} OtherCostRow
 * @property {string} what
 * @property {string | null} model
 * @property {number} trials
 * @property {number} tokens
 * @property {number} usd
 * @property {number} gpu_seconds
 * @property {number} counted_gpu_seconds
 * @property {number} answers
 * @property {number | null} server_seconds
 * @property {number | null} server_gpu_seconds
 */

/**
 * @typedef {object} ServerRow
 * @property {string} model
 * @property {string[]} command
 * @property {string | null} version
 * @property {number} starts
 */

/**
 * @typedef {object} SiteView
 * @property {SiteRow} row
 * @property {number} answers
 * @property {number | null} per_second
 */

/**
 * @typedef {object} SiteRow
 * @property {string} model
 * @property {string} site
 * @property {string} state
 * @property {number} since
 * @property {string | null} host
 * @property {string | null} node
 * @property {number} gpus
 * @property {string | null} devices
 * @property {number} placed
 * @property {number} moves
 * @property {number} losses
 * @property {string | null} why
 * @property {number | null} up
 * @property {number} served
 */

/**
 * @typedef {object} BatchRow
 * @property {string} model
 * @property {string | null} batch
 * @property {number} requests
 * @property {number} since
 * @property {boolean} cancelled
 */

/**
 * @typedef {object} TurnsRow
 * @property {string} on
 * @property {number} models
 * @property {number} swaps
 * @property {number} seconds
 */

/**
 * @typedef {object} DecisionsInWords
 * @property {string} objective
 * @property {string} rule
 * @property {string} promise
 * @property {string} allocation
 * @property {string} prior
 * @property {string} seeds
 */

/**
 * @typedef {object} QuestionView
 * @property {string} id
 * @property {string} prompt
 * @property {string} answer
 * @property {string[]} choices
 * @property {string | null} cluster
 */

/**
 * @typedef {object} PosteriorView
 * @property {number[]} counts
 * @property {number} mean
 * @property {number} lo
 * @property {number} hi
 */

/**
 * @typedef {object} LookView
 * @property {number} look
 * @property {number} at
 * @property {string[]} models
 * @property {string[]} order
 * @property {number[]} trials
 * @property {number[]} tiers
 * @property {(number | null)[]} scores
 * @property {(number | null)[]} sigmas
 * @property {PairView[]} pairs
 */

/**
 * @typedef {object} PairView
 * @property {string} better
 * @property {string | null} worse
 * @property {string} verdict
 * @property {number | null} z
 * @property {number | null} boundary
 * @property {number | null} information
 */

/**
 * @typedef {object} Spending
 * @property {number} at
 * @property {number} trials
 * @property {number} tokens
 * @property {number} usd
 * @property {number} gpu_seconds
 */

/**
 * @typedef {object} ReplicaTraffic
 * @property {string} model
 * @property {string} replica
 * @property {number} trials
 * @property {number} retries
 * @property {number} prompt_tokens
 * @property {number} completion_tokens
 * @property {number} latency
 * @property {number | null} ttft
 */

/**
 * @typedef {object} EventView
 * @property {number} at
 * @property {string} kind
 * @property {Record<string, any>} body
 * @property {string | null} text
 */

/**
 * @typedef {object} RunProgress
 * @property {number} step
 * @property {string} edition
 * @property {string} status
 * @property {number} trials
 * @property {number} per_second
 * @property {number} elapsed
 * @property {Spending} spending
 * @property {CellUpdate[]} cells
 * @property {number | null} eta_seconds
 * @property {SiteSpeed[]} sites
 */

/**
 * @typedef {object} SiteSpeed
 * @property {string} model
 * @property {string} site
 * @property {number} per_second
 */

/**
 * @typedef {object} CellUpdate
 * @property {number} model
 * @property {number} question
 * @property {PosteriorView} posterior
 */

/**
 * @typedef {object} RunBrief
 * @property {string} name
 * @property {string} status
 * @property {string | null} reason
 * @property {number} models
 * @property {number} questions
 * @property {number} trials
 * @property {number | null} cap
 * @property {number} resolved
 * @property {number} tied
 * @property {number} open
 * @property {number} out_of_reach
 * @property {number} blocked
 * @property {number} undecided_by_labels
 * @property {string | null} best
 * @property {string | null} gate
 * @property {number} created
 * @property {number} updated
 */

/**
 * @typedef {object} AnswersPage
 * @property {QuestionView} question
 * @property {string} model
 * @property {TrialView[]} trials
 * @property {boolean} more
 */

/**
 * @typedef {object} TrialView
 * @property {number} trial
 * @property {number} seed
 * @property {number | null} category
 * @property {number | null} value
 * @property {Record<string, any>} signals
 * @property {string | null} extracted
 * @property {string | null} grader_error
 * @property {string | null} finish_reason
 * @property {number} prompt_tokens
 * @property {number} completion_tokens
 * @property {number} latency
 * @property {string} replica
 * @property {number} attempts
 * @property {string} text
 * @property {string | null} reasoning
 * @property {number | null} completion_bpt
 * @property {([string, number | null])[]} tokens
 */

/**
 * The last message of a transcript in Inspect's log.
 * @typedef {object} TranscriptEnd
 * @property {string} log
 * @property {string} sample
 * @property {string | null} role
 * @property {string} text
 */

/**
 * @typedef {object} Term
 * @property {string} name
 * @property {string} text
 */

/**
 * What every word means, by its key.
 * @typedef {object} Glossary
 * @property {Term} tier
 * @property {Term} letters
 * @property {Term} score
 * @property {Term} bayes
 * @property {Term} sigma_here
 * @property {Term} corrected
 * @property {Term} sigma_like_these
 * @property {Term} trials
 * @property {Term} prior_trials
 * @property {Term} z
 * @property {Term} boundary
 * @property {Term} rho
 * @property {Term} resolved
 * @property {Term} tied
 * @property {Term} open
 * @property {Term} out_of_reach
 * @property {Term} blocked
 * @property {Term} undecided_by_labels
 * @property {Term} delta
 * @property {Term} certifiable_delta
 * @property {Term} information
 * @property {Term} power
 * @property {Term} trials_needed
 * @property {Term} questions_needed
 * @property {Term} adjusted_p
 * @property {Term} look
 * @property {Term} not_judged
 * @property {Term} posterior
 * @property {Term} per_answer
 * @property {Term} server_time
 * @property {Term} set_aside
 * @property {Term} gate
 */

/** @typedef {keyof Glossary} TermKey */

/** The run that a report carries. @returns {RunView | null} */
export function embeddedView() {
  return embedded("view");
}

/** What every word means, which each document carries. @returns {Glossary} */
export function embeddedGlossary() {
  return embedded("glossary");
}

/** @param {string} id */
function embedded(id) {
  const found = document.getElementById(id);
  return found && JSON.parse(found.textContent);
}

/** The view of the run behind `api`. @param {string} api @returns {Promise<RunView>} */
export function readView(api) {
  return json(`${api}view`);
}

/** Totals of the run behind `api`, and what has changed since a step. @param {string} api @param {number} after @returns {Promise<RunProgress>} */
export function readProgress(api, after) {
  return json(`${api}progress?after=${after}`);
}

/** The runs of the folder whose pages begin at `root`. @param {string} root @returns {Promise<RunBrief[]>} */
export function readRuns(root) {
  return json(`${root}api/runs`);
}

/**
 * A page of trials of a question by a model, both by number, after the trial of that number.
 * @param {string} api @param {number} question @param {number} model @param {number | null} after
 * @returns {Promise<AnswersPage>}
 */
export function readAnswers(api, question, model, after) {
  return json(`${api}question/${question}?model=${model}${after === null ? "" : `&after=${after}`}`);
}

/**
 * The last message of a trial that Inspect ran, all by number.
 * @param {string} api @param {number} question @param {number} model @param {number} trial
 * @returns {Promise<TranscriptEnd>}
 */
export function readTranscript(api, question, model, trial) {
  return json(`${api}transcript/${question}?model=${model}&trial=${trial}`);
}

/** Where Inspect's logs lie in the directory of a run. */
export const INSPECT_LOGS = "logs/inspect";

/** The server did not answer, or not with what was asked for. */
export class Unreachable extends Error {}

/** The JSON behind an address; an error that says what the server said. @param {string} address */
async function json(address) {
  const unreachable = (/** @type {Error} */ { message }) => {
    throw new Unreachable(message);
  };
  const response = await fetch(address, { cache: "no-cache" }).catch(unreachable);
  if (!response.ok) throw new Unreachable(`the server answered ${response.status}`);
  return response.json().catch(unreachable);
}
