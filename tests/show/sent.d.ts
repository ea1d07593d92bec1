// What a server sends to the page, or a report carries. Numbers that do not exist are null.
// Written by page_types.py from the Python types: change those, and run it.

interface Advice {
  text: string;
  command: string | null;
}

interface AlarmRow {
  model: string;
  kind: string;
  answers: number;
  of: number;
  before: number;
  before_of: number;
  since: number | null;
  text: string;
}

interface AnswersPage {
  question: QuestionView;
  model: string;
  trials: TrialView[];
  more: boolean;
}

interface BatchRow {
  model: string;
  batch: string | null;
  requests: number;
  since: number;
  cancelled: boolean;
}

interface CallRow {
  look: number;
  z: number | null;
  boundary: number | null;
}

interface Caution {
  kind: string;
  model: string | null;
  text: string;
}

interface CellUpdate {
  model: number;
  question: number;
  posterior: PosteriorView;
}

interface DecisionsInWords {
  objective: string;
  rule: string;
  promise: string;
  allocation: string;
  prior: string;
  seeds: string;
}

interface EventView {
  at: number;
  kind: string;
  body: Record<string, any>;
  text: string | null;
}

interface FrontierRow {
  model: string;
  usd: number | null;
  usd_sigma: number | null;
  part: string;
  behind: string | null;
}

interface GateRow {
  model: string;
  baseline: string | null;
  outcome: string;
  why: string;
  doubted: string[];
}

interface Glossary {
  tier: Term;
  letters: Term;
  score: Term;
  bayes: Term;
  sigma: Term;
  set_aside: Term;
  trials: Term;
  prior_trials: Term;
  z: Term;
  boundary: Term;
  resolved: Term;
  tied: Term;
  open: Term;
  out_of_reach: Term;
  blocked: Term;
  undecided_by_labels: Term;
  delta: Term;
  information: Term;
  power: Term;
  trials_needed: Term;
  adjusted_p: Term;
  look: Term;
  per_answer: Term;
  server_time: Term;
  gate: Term;
}

interface GradedPair {
  first: string;
  verdict: string;
  difference: number | null;
}

interface GradingCost {
  answers: number;
  tokens: number;
  usd: number;
  gpu_seconds: number;
  in_vain: WastedCost | null;
}

interface GroupRow {
  by: string;
  group: string;
  share: number;
  questions: number;
  model: string;
  trials: number;
  score: number | null;
  sigma: number | null;
  lo: number | null;
  hi: number | null;
  gate: string | null;
}

interface JudgeUse {
  answers: number;
  prompt_tokens: number;
  completion_tokens: number;
  usd: number;
  gpu_seconds: number;
  seconds: number;
  agreements: (number | null)[];
}

interface LabelledModel {
  name: string;
  trials: number;
  labels: number;
  confusion: number[][];
  score: number | null;
  sigma: number | null;
  corrected: number | null;
  corrected_sigma: number | null;
  shift: number | null;
  shift_sigma: number | null;
}

interface LabelledRun {
  digest: string;
  grader: string;
  levels: string[];
  models: LabelledModel[];
  differ: boolean;
  left_out: number;
  problem: string | null;
  alone: boolean;
  by_grades: string | null;
}

interface LookRow {
  look: number;
  trials: number;
  resolved: number;
  tied: number;
  open: number;
  out_of_reach: number;
  blocked: number;
}

interface LookView {
  look: number;
  at: number;
  models: string[];
  order: string[];
  trials: number[];
  tiers: number[];
  scores: (number | null)[];
  sigmas: (number | null)[];
  pairs: PairView[];
}

interface MetricRow {
  metric: string;
  model: string;
  value: number | null;
  sigma: number | null;
  lo: number | null;
  hi: number | null;
}

interface ModelRow {
  name: string;
  rank: number;
  tier: number | null;
  score: number | null;
  sigma: number | null;
  lo: number | null;
  hi: number | null;
  bayes: number | null;
  bayes_sigma: number | null;
  sampled_sigma: number | null;
  trials: number;
  set_aside: string | null;
  stored_trials: number;
  ungraded: number;
  repeats: number;
  signals: Record<string, number>;
  tokens: number;
  usd: number;
  gpu_seconds: number;
  sampling: Record<string, any>;
  prior_depth: number;
  lowest: number | null;
  highest: number | null;
  letters: string;
  server_seconds: number | null;
  server_gpu_seconds: number | null;
  score_without_prior: number | null;
  rank_without_prior: number | null;
  recorded: string | null;
  grading: GradingCost | null;
  labels: number;
  graded_score: number | null;
  cut: number;
  usd_per_answer: number | null;
  tokens_per_answer: number | null;
  seconds_per_answer: number | null;
}

interface ObjectiveView {
  compares: boolean;
  in_order: boolean;
  baseline: string | null;
  first: number | null;
  value: number | null;
  half_width: number | null;
  margin: number | null;
}

interface OtherCostRow {
  what: string;
  model: string | null;
  trials: number;
  tokens: number;
  usd: number;
  gpu_seconds: number;
  counted_gpu_seconds: number;
  answers: number;
  server_seconds: number | null;
  server_gpu_seconds: number | null;
}

interface PairRow {
  first: string;
  second: string | null;
  verdict: string;
  difference: number | null;
  sigma: number | null;
  z: number | null;
  rho: number | null;
  boundary: number | null;
  information: number | null;
  power: number | null;
  trials_needed: number | null;
  sampled_z: number | null;
  certifiable_delta: number | null;
  called: CallRow | null;
  by_trial: boolean;
  variance_by_trial: number | null;
  horizon_needed: number | null;
  by_grades: GradedPair | null;
}

interface PairView {
  first: string;
  second: string | null;
  verdict: string;
  z: number | null;
  boundary: number | null;
  information: number | null;
}

interface PosteriorView {
  counts: number[];
  mean: number;
  lo: number;
  hi: number;
}

interface QuestionView {
  id: string;
  prompt: string;
  answer: string;
  choices: string[];
  cluster: string | null;
}

interface ReplicaTraffic {
  model: string;
  replica: string;
  trials: number;
  retries: number;
  prompt_tokens: number;
  completion_tokens: number;
  latency: number;
  ttft: number | null;
  cached_tokens: number;
}

interface RescoredModel {
  name: string;
  score: number | null;
  sigma: number | null;
  rank: number | null;
  tier: number | null;
  counts: number[];
  left_out: number;
}

interface RescoredRubric {
  name: string;
  categories: string[];
  weights: number[];
  thresholds: Record<string, number>;
  fitted: string[];
  assumed: Record<string, number>;
  models: RescoredModel[];
  tau_b: number | null;
}

interface Rescoring {
  run: string;
  trials: number;
  rubrics: RescoredRubric[];
  unavailable: RubricUnavailable[];
  with_prior: boolean;
}

interface Results {
  format: string;
  run: RunInfo;
  decisions: Record<string, any>;
  weights: number[];
  models: ModelRow[];
  pairs: PairRow[];
  reversals: ([string, string | null])[];
  adjusted_p: ((number | null)[])[];
  looks: LookRow[];
  questions: never[];
  warnings: Caution[];
  cost: RunCost;
  trials_to_go: number;
  servers: ServerRow[];
  turns: TurnsRow[];
  gate: GateRow[];
  frontier: FrontierRow[];
  batches: BatchRow[];
  metrics: MetricRow[];
  groups: GroupRow[];
  labelled: LabelledRun | null;
  alarms: AlarmRow[];
}

interface RubricUnavailable {
  name: string;
  why: string;
}

interface RunBrief {
  name: string;
  status: string;
  reason: string | null;
  models: number;
  questions: number;
  trials: number;
  cap: number | null;
  resolved: number;
  tied: number;
  open: number;
  out_of_reach: number;
  blocked: number;
  undecided_by_labels: number;
  best: string | null;
  gate: string | null;
  created: number;
  updated: number;
}

interface RunCost {
  trials: number;
  allowed_trials: number;
  max_trials: number;
  tokens: number;
  usd: number;
  gpu_seconds: number;
  server_seconds: number | null;
  server_gpu_seconds: number | null;
  counted_gpu_seconds: number | null;
  beside: OtherCostRow[];
  grading: GradingCost | null;
}

interface RunInfo {
  name: string;
  version: string;
  created: string;
  updated: string;
  active_seconds: number;
  status: string;
  reason: string | null;
  kills: number;
}

interface RunProgress {
  step: number;
  edition: string;
  status: string;
  trials: number;
  per_second: number;
  elapsed: number;
  spending: Spending;
  cells: CellUpdate[];
  eta_seconds: number | null;
  sites: SiteSpeed[];
}

interface RunView {
  results: Results | null;
  name: string;
  objective: ObjectiveView;
  words: DecisionsInWords;
  configuration: Record<string, any>;
  weights: number[];
  categories: string[];
  models: string[];
  questions: QuestionView[];
  trials: number[][];
  posteriors: PosteriorView[];
  posterior_of: number[][];
  looks: LookView[];
  z: ((number | null)[])[];
  trials_to_go: number | null;
  spending: Spending[];
  traffic: ReplicaTraffic[];
  events: EventView[];
  has_tiers: boolean;
  elapsed: number;
  stopped: string | null;
  ended: string | null;
  next_steps: Advice[];
  place: string;
  batches: BatchRow[];
  sites: SiteView[];
  rescored: Rescoring | null;
  thresholds: string | null;
  judge: JudgeUse | null;
  orders: string | null;
  besides: OtherCostRow[];
  by_trial: string[];
  finding: string[];
  transcripts: TranscriptEnd[];
  counted: string | null;
  verdicts: string[];
  published: string;
}

interface ServerRow {
  model: string;
  command: string[];
  version: string | null;
  starts: number;
}

interface SiteRow {
  model: string;
  site: string;
  state: string;
  since: number;
  host: string | null;
  node: string | null;
  gpus: number;
  devices: string | null;
  placed: number;
  moves: number;
  losses: number;
  why: string | null;
  up: number | null;
  served: number;
}

interface SiteSpeed {
  model: string;
  site: string;
  per_second: number;
}

interface SiteView {
  row: SiteRow;
  answers: number;
  per_second: number | null;
}

interface Spending {
  at: number;
  trials: number;
  tokens: number;
  usd: number;
  gpu_seconds: number;
}

interface Term {
  name: string;
  text: string;
}

interface TranscriptEnd {
  log: string;
  sample: string;
  role: string | null;
  text: string;
}

interface TrialView {
  trial: number;
  seed: number;
  category: number | null;
  value: number | null;
  signals: Record<string, any>;
  extracted: string | null;
  grader_error: string | null;
  finish_reason: string | null;
  prompt_tokens: number;
  completion_tokens: number;
  latency: number;
  replica: string;
  attempts: number;
  text: string;
  reasoning: string | null;
  completion_bpt: number | null;
  tokens: ([string, number | null])[];
}

interface TurnsRow {
  on: string;
  models: number;
  swaps: number;
  seconds: number;
}

interface WastedCost {
  verdicts: number;
  tokens: number;
  usd: number;
  gpu_seconds: number;
}

type TermKey = keyof Glossary;
