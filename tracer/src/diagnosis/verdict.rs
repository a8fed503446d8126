//! The form of an answer.

use super::Bottleneck;
use crate::attribution::Cause;
use serde::{Deserialize, Serialize};

/// An answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    /// What held the training back.
    pub bottleneck: Bottleneck,
    /// Largest cause of idle time of that kind; absent when there was no idle time to speak of.
    pub cause: Option<Cause>,
    /// Share of the idle time that this cause explains, 0 to 1.
    pub share: f64,
    /// The answer in one or two sentences.
    pub summary: String,
    /// Numbers that can be checked with other tools, one sentence each.
    pub evidence: Vec<String>,
    /// What to do, most useful first.
    pub advice: Vec<String>,
    /// How many times faster the run could be at most if the cause went away; absent when there is no such cause.
    pub speedup_bound: Option<f64>,
}
